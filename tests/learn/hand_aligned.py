"""French and English sentences with their words aligned by hand, and the same links for tokens.

A link is `french=english`. A word that has no counterpart of its own (the "do" of a question, one
half of "ne ... pas") has no link. Every linked word stands once in its sentence.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pellucid.decoding.alignment import AlignedPair
from pellucid.tokenizers.sentencepiece import EOS_ID, Tokenizer


class HandAligned(NamedTuple):
    """A sentence pair and its links."""

    french: str
    english: str
    links: str


_PAIRS = [
    ("La porte rouge grince.", "The red door creaks.",
     "La=The porte=door rouge=red grince=creaks .=."),
    ("Je la connais depuis dix ans.", "I have known her for ten years.",
     "Je=I la=her connais=known connais=have depuis=for dix=ten ans=years .=."),
    ("Où as-tu rangé les clés ?", "Where did you put the keys?",
     "Où=Where tu=you rangé=put as=did les=the clés=keys ?=?"),
    ("Marie ne boit jamais de café le soir.", "Marie never drinks coffee in the evening.",
     "Marie=Marie boit=drinks jamais=never café=coffee le=the soir=evening .=."),
    ("Il nous a prêté sa vieille voiture verte.", "He lent us his old green car.",
     "Il=He nous=us prêté=lent sa=his vieille=old voiture=car verte=green .=."),
    ("Pourquoi le bébé pleure-t-il ?", "Why is the baby crying?",
     "Pourquoi=Why le=the bébé=baby pleure=crying pleure=is ?=?"),
    ("Ce livre coûte 25 euros.", "This book costs 25 euros.",
     "Ce=This livre=book coûte=costs 25=25 euros=euros .=."),
    ("Le train de Lyon part à midi.", "The train from Lyon leaves at noon.",
     "Le=The train=train de=from Lyon=Lyon part=leaves à=at midi=noon .=."),
    ("Personne ne m'a répondu.", "Nobody answered me.",
     "Personne=Nobody m'=me répondu=answered .=."),
    ("J'aime beaucoup la musique ancienne.", "I like early music a lot.",
     "J'=I aime=like beaucoup=lot beaucoup=a musique=music ancienne=early .=."),
    ("Demain, nous irons à la plage.", "Tomorrow we will go to the beach.",
     "Demain=Tomorrow nous=we irons=will irons=go à=to la=the plage=beach .=."),
    ("Le chien du voisin a mangé mon chapeau.", "The neighbour's dog ate my hat.",
     "Le=The chien=dog voisin=neighbour' mangé=ate mon=my chapeau=hat .=."),
    ("Paul est plus grand que son frère.", "Paul is taller than his brother.",
     "Paul=Paul est=is grand=taller plus=taller que=than son=his frère=brother .=."),
    ("Donne-moi un verre d'eau froide.", "Give me a glass of cold water.",
     "Donne=Give moi=me un=a verre=glass d'=of eau=water froide=cold .=."),
    ("Elle a peur des araignées noires.", "She is afraid of black spiders.",
     "Elle=She a=is peur=afraid des=of araignées=spiders noires=black .=."),
    ("Avez-vous déjà visité Berlin ?", "Have you ever visited Berlin?",
     "Avez=Have vous=you déjà=ever visité=visited Berlin=Berlin ?=?"),
    ("Les enfants jouent dans la neige.", "The children are playing in the snow.",
     "Les=The enfants=children jouent=playing jouent=are dans=in neige=snow .=."),
    ("Mon père travaille dans une petite usine.", "My father works in a small factory.",
     "Mon=My père=father travaille=works dans=in une=a petite=small usine=factory .=."),
    ("Je ne le lui ai pas dit.", "I did not tell him that.",
     "Je=I lui=him pas=not dit=tell le=that ai=did .=."),
    ("Sophie parle trois langues étrangères.", "Sophie speaks three foreign languages.",
     "Sophie=Sophie parle=speaks trois=three langues=languages étrangères=foreign .=."),
    ("Il pleut souvent en novembre.", "It often rains in November.",
     "Il=It pleut=rains souvent=often en=in novembre=November .=."),
    ("Cette chaise cassée est à Thomas.", "This broken chair is Thomas's.",
     "Cette=This chaise=chair cassée=broken est=is Thomas=Thomas' .=."),
    ("Le médecin lui a conseillé de dormir.", "The doctor advised her to sleep.",
     "Le=The médecin=doctor lui=her conseillé=advised de=to dormir=sleep .=."),
    ("Tu devrais vendre cette maison blanche.", "You should sell that white house.",
     "Tu=You devrais=should vendre=sell cette=that maison=house blanche=white .=."),
    ("À quelle heure ouvre la banque ?", "What time does the bank open?",
     "quelle=What heure=time ouvre=open la=the banque=bank ?=?"),
    ("J'ai acheté du pain et deux kilos de pommes.", "I bought bread and two kilos of apples.",
     "J'=I acheté=bought pain=bread et=and deux=two kilos=kilos de=of pommes=apples .=."),
    ("Anna nous attendra devant le cinéma.", "Anna will wait for us outside the cinema.",
     "Anna=Anna nous=us attendra=will attendra=wait devant=outside le=the cinéma=cinema .=."),
    ("Ses yeux bleus brillaient.", "Her blue eyes were shining.",
     "Ses=Her yeux=eyes bleus=blue brillaient=were brillaient=shining .=."),
]  # fmt: skip
PAIRS = [HandAligned(*pair) for pair in _PAIRS]

_WORD = re.compile(r"\w+(?:['’](?=\w))?|[^\w\s]")


def word_spans(text: str) -> list[tuple[str, int, int]]:
    """Each word and punctuation mark, and where it stands in the bytes of the text."""
    return [
        (match[0], len(text[: match.start()].encode()), len(text[: match.end()].encode()))
        for match in _WORD.finditer(text)
    ]


def words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[set[str]]:
    """For each token the words that it is a part of; a token may be a part of several."""
    spans = word_spans(text)
    found, at = [], -1  # the tokenizer puts one space before the text
    for token in ids:
        row = tokenizer.pieces[token]
        size = 1 if row.kind == "byte" else len(row.piece.replace("▁", " ").encode())
        found.append({word for word, start, end in spans if start < at + size and at < end})
        at += size
    assert at == len(text.encode())
    return found


def aligned(
    tokenizer: Tokenizer, source: str, target: str, language: str, links: set[tuple[str, str]]
) -> AlignedPair:
    """A pair with links between words (source, target) as one with links between tokens."""
    for side, text in enumerate((source, target)):
        words = [word for word, _, _ in word_spans(text)]
        for link in links:
            assert words.count(link[side]) == 1, f"{link[side]!r} in {text!r}"
    source_ids, target_ids = tokenizer.encode_batch([source, target])
    of_source = words_of_tokens(tokenizer, source_ids, source)
    of_target = words_of_tokens(tokenizer, target_ids, target)
    return AlignedPair(
        [tokenizer.tag_id(language), *source_ids, EOS_ID],
        target_ids,
        [
            (t, s + 1)  # after the tag
            for t, targets in enumerate(of_target)
            for s, sources in enumerate(of_source)
            if any(link in links for link in ((a, b) for a in sources for b in targets))
        ],
    )


def hand_aligned(tokenizer: Tokenizer, direction: str) -> list[AlignedPair]:
    """The French and English pairs in one direction, "fr-en" or "en-fr"."""
    found = []
    for french, english, text in PAIRS:
        links = {(a, b) for a, b in (link.split("=") for link in text.split())}
        if direction == "fr-en":
            found.append(aligned(tokenizer, french, english, "en", links))
        else:
            back = {(b, a) for a, b in links}
            found.append(aligned(tokenizer, english, french, "fr", back))
    return found
