"""Abbreviations, whose full stop may not end a sentence, and words that often begin one.

All words are written without the last full stop and in lower case. The list of a word says what its
full stop means; `sentences.py` uses them.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Written with a capital, they are followed by a name: never the end of a sentence.
TITLES: dict[str, frozenset[str]] = {
    "en": _words(
        """mr mrs ms mx messrs dr drs prof gen col capt cpt lt cmdr adm maj sgt cpl pvt rev fr hon
        pres gov sen rep amb insp supt st mt ft"""
    ),
    "fr": _words(
        """m mm mme mmes mlle mlles dr drs pr prof me mgr st ste sts gén col cap lt sgt cne cdt"""
    ),
    "de": _words("hr hrn fr frl dr dres prof dipl ing hl st mag lt gen hptm"),
}

# They are followed by the word they belong to, in capitals or not: never the end of a sentence.
LEADING: dict[str, frozenset[str]] = {
    "en": _words("e.g i.e viz cf vs v approx esp incl misc ca resp asst assoc"),
    "fr": _words("p.ex c.-à-d c.à.d cf env resp vs tél fém masc boul bd dir"),
    "de": _words(
        """z.b d.h u.a i.d.r v.a bzw ca vgl evtl ggf inkl exkl zzgl geb gest sog bspw insb mind
        allg ehem engl frz s.o s.u m.e u.u z.t i.a o.g nördl südl östl westl vs fa med
        jur phil rer nat habil"""
    ),
}

# They belong to a number when one follows; otherwise they are ordinary words.
NUMBERED: dict[str, frozenset[str]] = {
    "en": _words(
        """no nos p pp vol vols art arts fig figs ch chap sec sect par para pt op ed eq eqs ex app
        jan feb mar apr jun jul aug sep sept oct nov dec lot ver rev l ll room rm ext tel c b d r
        """
    ),
    "fr": _words(
        """n no nos nº n° p pp vol t art al fig chap ch sect par éd op janv févr avr juil sept oct
        nov déc r bât apt tél réf l v cat fasc hab"""
    ),
    "de": _words(
        """nr nrn s ss bd bde art abb abs kap tab jg aufl par ziff anm hs jan feb mrz apr jun jul
        aug sep sept okt nov dez zi tel max min str"""
    ),
}

# They end a sentence if the next word is one that often begins one.
CLOSING: dict[str, frozenset[str]] = {
    "en": _words(
        """inc ltd co corp llc plc jr sr esq bros ph.d m.d b.a m.a dept univ est ave blvd rd ln
        hwy a.d b.c b.c.e c.e a.k.a d.c l.a al"""
    ),
    "fr": _words("""j.-c s.a s.a.s s.a.r.l cie sté ets av apr dép arr min max suiv"""),
    "de": _words("""o.ä o.g u.ä co kg e.v a.d h.c jr sen jun mio mrd tsd chr v.chr n.chr n.u.z"""),
}

# They close a list or a time of day: what follows in a capital letter is a new sentence.
TRAILING = _words("etc usw usf u.s.w u.s.f a.m p.m ff ss sqq")

# Abbreviations of several parts, by their last part and the part before it.
PAIRS_LEADING = frozenset(
    {
        ("z", "b"), ("d", "h"), ("u", "a"), ("v", "a"), ("d", "r"), ("z", "t"), ("s", "o"),
        ("s", "u"), ("m", "e"), ("u", "u"), ("i", "a"), ("p", "ex"), ("o", "g"), ("i", "e"),
        ("e", "g"), ("c", "à-d"), ("zum", "bsp"), ("l", "c"), ("et", "al"), ("h", "c"),
    }
)  # fmt: skip
PAIRS_TRAILING = frozenset({("u", "ä"), ("o", "ä"), ("a", "m"), ("p", "m")})
PAIRS_CLOSING = frozenset({("v", "chr"), ("n", "chr"), ("av", "j.-c"), ("apr", "j.-c")})

# After an initial, a closing abbreviation or an ordinal number, these begin a new sentence.
STARTERS: dict[str, frozenset[str]] = {
    "en": _words(
        """a an the this that these those he she it we they i you his her its our their my your
        there here who what when where why how which if but and or so then thus however because
        although while after before since in on at by for from with as not no yes let please
        once today yesterday tomorrow now some all many most both each every another one two
        several nobody nothing everyone someone did do does is are was were can could will would
        """
    ),
    "fr": _words(
        """le la les un une des du l' d' c' j' s' il elle ils elles on je tu nous vous ce cet cette
        ces mon ton son ma ta sa mes tes ses notre votre leur nos vos leurs mais et ou donc or car
        puis alors dans en pour quand si sur sous par avec sans après avant depuis comme lorsque
        où qui que quoi comment pourquoi ici là hier demain aujourd'hui ainsi cependant toutefois
        chaque tous tout toutes aucun rien personne à au aux"""
    ),
    "de": _words(
        """der die das den dem des ein eine einen einem einer er sie es wir ihr ich du man dieser
        diese dieses mein dein sein unser euer aber und oder denn doch sondern dann danach davor
        da dort hier heute gestern morgen jetzt nun wenn weil als ob obwohl während nach vor seit
        in im an am auf aus bei mit von zu für über unter durch wer was wo wann warum wie welche
        auch nicht kein keine alle viele einige jeder jede jedes trotzdem deshalb daher so"""
    ),
}

# Nouns that a German ordinal number counts: "am 3. Mai", "im 19. Jahrhundert".
COUNTED = _words(
    """januar jänner februar märz april mai juni juli august september oktober november dezember
    jan feb mrz apr jun jul aug sep sept okt nov dez
    jahrhundert jahrhunderts jahrtausend jahrzehnt jahr jahres monat woche tag stunde minute
    geburtstag jahrestag mal platz stock stockwerk etage klasse liga auflage ausgabe weltkrieg
    weltkriegs kapitel teil band akt satz runde spieltag semester quartal lebensjahr bezirk
    fc armee division sinfonie symphonie advent mose klässler kongress"""
)
