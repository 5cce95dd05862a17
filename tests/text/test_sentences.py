"""Where sentences end: a table of cases, and what may never happen to a text."""

import time
from collections.abc import Callable

import pytest

from pellucid.errors import InputError
from pellucid.text.sentences import Segment, segment, split_long, split_sentences

# A bar stands where a sentence begins. Every case is read twice: with its language and without.
CASES = {
    "en": [
        "The kettle is on. |Would you like some tea?",
        "It rained all night! |The river rose. |Nobody slept.",
        "Only one sentence here",
        "Only one sentence here.",
        "Mr. Harlow sold the boat. |Mrs. Harlow kept the oars.",
        "We met Dr. Patel and Prof. Lindqvist at noon. |They were late.",
        "Gen. Ortiz spoke first. |Then Col. Wade answered.",
        "She lives on St. Anne Street. |It is quiet there.",
        "Bring fruit, e.g. pears or plums. |Leave the bananas.",
        "The last one, i.e. the red one, is mine.",
        "Some tools, e.g. Hammers Inc. products, are sold here.",
        "J. R. R. Tolkien was not the author of this note. |I am.",
        "The letter was signed by A. B. Carter. |He denied it.",
        "John F. Miller opened the shop in May.",
        "He moved to the U.S. |He never came back.",
        "The U.S. Army bought the field. |Farmers protested.",
        "See No. 5 on the list. |It is crossed out.",
        "The answer is no. |She will not come.",
        "Read pp. 12 to 40. |Skip the notes.",
        "As Fig. 3 shows, it leaks. |We fixed it.",
        "Pi is about 3.14159. |Nobody needs more.",
        "It costs 2.50 a piece. |That is cheap.",
        "Version 2.0.1 is out. |Version 3 will wait.",
        "We start at 9 a.m. |Bring a pen.",
        "We start at 9 a.m. on Monday.",
        "The train leaves at 5.30 p.m. |Do not be late.",
        "Write to help@garden.example. |We answer within a day.",
        "Visit www.garden.example/maps.html today. |It is free.",
        "Open https://garden.example/a.b?c=d.e and log in. |Then wait.",
        "Edit config.toml first. |Then run main.py again.",
        '"Stop!" he shouted.',
        '"Stop!" |He ran to the gate.',
        '"I am tired." |She closed the book.',
        "“I am tired.” |She closed the book.",
        "'It works.' |That was all she wrote.",
        "She asked, “Why now?” and left.",
        "(He was wrong.) |Nobody told him.",
        "He was wrong (as usual). |Nobody told him.",
        "What?! |You sold the piano?",
        "Really?? |Yes. |Really!!!",
        "I wonder... |Maybe not.",
        "I wonder... maybe not.",
        "I… I do not know.",
        "So… |The end.",
        "Apples, pears, etc. are in the cellar.",
        "We have apples, pears, etc. |The cellar is full.",
        "Acme Ltd. makes rope. |Acme Inc. makes string.",
        "He works for Acme Inc. |They make rope.",
        "Robert Vance Jr. won the race. |His father watched.",
        "It happened in 1987. |I was there.",
        "It happened on Jan. 5 of that year.",
        "She has a Ph.D. in botany. |She grows ferns.",
        "Vitamin C. |It helps.",
        "Plan B. |The other one failed.",
        "1. Open the box. |2. Remove the lid.",
        "Great! 😀 |See you soon.",
        "Great. 🎉🎉 |See you soon. 👋",
        "This is new (!) and rare.",
        "He scored 7 vs. Brown and 9 vs. Green. |Not bad.",
        "Rev. Stone and Capt. Marsh disagreed.",
        "The cat sat. |the dog did not care.".replace("|", ""),
        "i like it. |do you like it? |yes!",
        "I like iPhones. |iPads are fine too.",
        "He said “yes.” |I said “no.”",
        "Is it 5 o'clock? |It is.",
        "Wait: there is more. |Much more.",
        "One; two; three. |Four.",
        "Section 3.2.1 explains it. |Read it.",
        "Turn left at Mt. Kelso. |Park there.",
        "The price rose 4.5%. |Wages did not.",
        "He got 100. |She got 90.",
        "He left at 10. |She stayed.",
        "This was proven.[3] |Others disagree.",
        "**Note.** |This is bold.",
        "Smith et al. found nothing. |We did.",
        "Use approx. 200 grams of flour. |Mix well.",
        "The U.K. and the E.U. signed. |It took years.",
        "Do you know what I mean? |No? |Fine.",
        "- First point. |Second point.",
        "That's it. |That's all, folks!",
        "Lt. Gov. Hayes waved. |Nobody waved back.",
        "Is that you, Mr. Bell? |Come in, please.",
        "The meeting, held in Washington D.C. last week, failed.",
        "They live in Washington, D.C. |Their dog does not.",
        "Call Mrs. O'Neil at 555.0199. |She knows.",
        "“Where to?” asked the driver. |“Home,” I said.",
        "“Where to?” |“Home,” I said.",
        "He cried “Fire!” and ran.",
        "It was 3 p.m. |The sun was high.",
        "See Sec. 4 and App. B for details.",
        "Mix (see step 2.) and wait. |Serve hot.",
        "Dinner is at 7:30 P.M. |Do not dress up.",
        "Ask for Ms. Q. |She is the boss.",
        "I have a cat, a dog, etc., and a parrot.",
        "Was it Brown v. Green? |It was.",
        "The file is named notes.final.txt. |Delete it.",
        "Go to example.com. |Click on the bell.",
        "He was born in St. Louis, Mo. |He left at six.",
        "Honestly... |I forgot.",
        "Yes. |No. |Maybe.",
        "The quiz (hard!) took hours. |We lost.",
        "She whispered: 'Go.' |We went.",
        "Prices start at $5. |Shipping is free.",
        "He paid $3.50. |It was a bargain!",
        "Who is there?... |Nobody.",
        "A. Smith came first. |B. Jones came second.",
        "The dose is 5 mg. |Take it twice.",
        "At 6 ft. tall, he stood out.",
        "Sgt. Pepper is a fine name for a dog.",
        "Hello World!",
        "Mr. and Mrs. Kent left. |So did we.",
        "The answer is no. |I will not ask again.",
        "She loves art. |I do not.",
        "Vol. II is lost. |Vol. III is not.",
    ],
    "fr": [
        "Il pleut. |Prends ton parapluie.",
        "M. Dupont est arrivé. |Mme Leroy l'attendait.",
        "M. Le Goff habite ici. |Il est marin.",
        "MM. Roux et Blanc ont signé. |C'est fait.",
        "Mlle. Petit chante. |Elle chante bien.",
        "Le Dr. Morel est absent. |Revenez demain.",
        "Me Caron plaide demain. |Il est prêt.",
        "Tu viens ? |Non, je reste !",
        "Tu viens\u00a0? |Non, je reste\u202f!",
        "Quoi ?! |Tu as vendu le piano ?",
        "Quoi ? ! |Je ne te crois pas.",
        "« Tu viens ? » |Elle ne répondit pas.",
        "« Tu viens ? » demanda-t-elle.",
        "«\u00a0Je suis las.\u00a0» |Il ferma le livre.",
        "Il dit : « Je suis las. » |Puis il partit.",
        "Il a dit « non ». |Elle a dit « oui ».",
        "Ah ! quelle journée !",
        "Ah ! |Quelle journée !",
        "Prends un fruit, p. ex. une poire. |Laisse les bananes.",
        "Prends un fruit, p. ex. Une Belle Poire.",
        "C'était en 52 av. J.-C. |Les Romains campaient ici.",
        "César, mort en 44 av. J.-C., aimait les figues.",
        "J.-P. Martin a écrit la lettre. |Elle est longue.",
        "Voir l'art. 5 du règlement. |Il est clair.",
        "Voir p. 12. |La carte est jolie.",
        "Il habite au n° 5. |La porte est bleue.",
        "Des pommes, des poires, etc. |La cave est pleine.",
        "Des pommes, des poires, etc. sont à la cave.",
        "Cela coûte 3,50 €. |C'est cher.",
        "Rendez-vous à 14 h 30. |Ne tarde pas.",
        "Le 1er mai, on ne travaille pas. |On se promène.",
        "Je ne sais pas... |Peut-être.",
        "Je ne sais pas… peut-être.",
        "Je… je ne sais pas.",
        "Eh bien… |Voilà.",
        "Bonjour ! 😀 |Ça va ?",
        "Écrivez à aide@jardin.example. |Nous répondons vite.",
        "Ouvrez https://jardin.example/a.b?c=d. |Attendez un peu.",
        "La version 2.0 est sortie. |Essayez-la.",
        "— Tu viens ? |— Non.",
        "Elle a dit (à voix basse) : « Viens. » |Je suis venu.",
        "(Il avait tort.) |Personne ne le dit.",
        "Qui est là ? |Personne.",
        "À demain. |À bientôt !",
        "Il est parti. |Étrange, non ?",
        "L'été est fini. |L'automne commence.",
        "C.-à-d. que rien ne change.",
        "Rien ne change, c.-à-d. tout reste. |Tant mieux.",
        "St. Malo est au bord de la mer.",
        "La société Durand et Cie. a fermé. |Elle vendait du fil.",
        "Comment ça va ? |Bien, et toi ?",
        "« Vite ! » |Ils coururent.",
        "“Vite !” |Ils coururent.",
        "Il a 5 ans. |Elle en a 7.",
        "Cf. chap. 3 pour la suite. |Bonne lecture.",
        "Il mesure env. 2 m. |Elle aussi.",
        "Pourquoi ? |Parce que.",
        "M. et Mme. Roux sont là. |Entrez !",
        "Il habite au 5, bd. Voltaire. |La rue est calme.",
        "Le film (un chef-d'œuvre !) dure 3 h. |On y va ?",
        "« Non », dit-il. |« Jamais. »",
        "Il cria : « Au feu ! » et courut.",
        "Né en 1802, mort en 1885. |Grand auteur.",
        "Attends… |Quoi ?… |Rien.",
        "Est-ce vrai ? |– Oui.",
        "Le prix est de 1 234,56 €. |C'est trop.",
        "Le prix est de 12.50 CHF. |Payez ici.",
        "L'A.B.C. du jardin est épuisé.",
        "Voir fig. 2 et chap. IV. |Tout y est.",
        "Le vol. II est perdu. |Dommage.",
        "Il arrive le 3. |Elle part le 4.",
        "Il pèse 80 kg. |Elle pèse moins.",
        "Ste. Anne est loin. |Prenons le bus.",
        "Dr. House ? |Connais pas.",
        "C'est la vie ! |C'est ainsi.",
        "S'il te plaît… |Merci !",
        "Tél. 01 02 03 04 05. |Demandez Luc.",
        "Qu'est-ce que c'est ? |Un chat.",
    ],
    "de": [
        "Es regnet. |Nimm den Schirm mit.",
        "Herr Dr. Weber ist krank. |Er kommt morgen.",
        "Hr. Weber und Fr. Kunz sind da. |Sie warten.",
        "Wir nehmen Obst, z. B. Birnen. |Bananen nicht.",
        "Wir nehmen Obst, z.B. Birnen. |Bananen nicht.",
        "Er kommt heute, d. h. am Abend. |Gut so.",
        "Das gilt u. a. für Hunde. |Für Katzen nicht.",
        "Das gilt u. a. Berlin betreffend.",
        "Äpfel, Birnen usw. |Der Keller ist voll.",
        "Äpfel, Birnen usw. liegen im Keller.",
        "Ich komme am 3. Mai. |Du kommst am 4. Juni.",
        "Am 3. Oktober ist frei. |Wir fahren weg.",
        "Das war im 19. Jahrhundert. |Lange her.",
        "Sie wohnt im 2. Stock. |Er wohnt im dritten.",
        "Sie kam am 3. 5. 2020 an. |Es war kalt.",
        "Er ist im 5. Semester. |Das reicht.",
        "Ludwig XIV. war König. |Er tanzte gern.",
        "Siehe Nr. 5 auf der Liste. |Sie ist neu.",
        "Siehe S. 12. |Dort steht alles.",
        "Siehe Abb. 3 und Kap. 4. |Das genügt.",
        "Die Hauptstr. 5 ist gesperrt. |Fahr außen herum.",
        "Es kostet 3,50 Euro. |Das ist billig.",
        "Es sind 1.500 Leute da. |Zu viele.",
        "Um 8.30 Uhr geht es los. |Sei da.",
        "„Komm!“ rief sie.",
        "„Komm!“ |Sie rief laut.",
        "„Ich bin müde.“ |Er schloss das Buch.",
        "»Ich bin müde.« |Er schloss das Buch.",
        "Er sagte nichts. »Ich bin müde.«".replace(". »", ". |»"),
        "Kommst du? |Nein!",
        "Was?! |Du hast das Klavier verkauft?",
        "Ich weiß nicht... |Vielleicht.",
        "Ich weiß nicht … vielleicht.",
        "Er wurde 1990 geboren. |Sie 1992.",
        "Das war 1990. |Dann kam der Winter.",
        "Schreiben Sie an hilfe@garten.example. |Wir antworten.",
        "Öffne https://garten.example/a.b. |Warte kurz.",
        "Bzw. nur einer. |Mehr nicht.",
        "Vgl. dazu das Buch. |Es ist dick.",
        "Ca. 200 Leute kamen. |Das war schön.",
        "Prof. Dr. med. Hahn spricht. |Ruhe bitte.",
        "Sie ist ca. 2 m groß. |Er auch.",
        "Das Haus von J. S. Brand steht leer. |Schade.",
        "Das geschah 44 v. Chr. in Rom. |Er starb.",
        "Toll! 😀 |Bis bald.",
        "Über uns. |Über euch.",
        "Sie nahm Brot, Käse o. Ä. |Dann ging sie.",
        "Die Firma Kurz & Co. baut Boote. |Sie sind gut.",
        "(Er hatte recht.) |Niemand sagte es.",
        "Guten Tag! |Wie geht es Ihnen?",
        "Max. 5 Personen. |Mehr geht nicht.",
        "Tel. 030 12345. |Rufen Sie an.",
        "Der 2. Weltkrieg endete 1945. |Danach kam Frieden.",
        "Er wohnt in der Goethestr. 12 in Bonn.",
        "Das ist Dr. h. c. Klein. |Sie lacht.",
        "Am 24. Dez. kommt Besuch. |Wir kochen.",
        "Inkl. MwSt. kostet es 20 Euro.",
        "Sie wurde Zweite. |Er wurde 3. |Das reichte.",
        "„Wohin?“ fragte er. |„Heim“, sagte sie.",
        "Ja. |Nein. |Vielleicht.",
        "Die Fa. Holz GmbH liefert nicht.",
        "Heinrich VIII. hatte sechs Frauen. |Arme Frauen.",
        "S. 5 fehlt. |S. 6 auch.",
        "Das kostet ca. 5 Mio. Euro. |Zu viel.",
        "Es gab Tee, Kaffee u. Ä. |Wir blieben lange.",
        "Der 1. FC gewann. |Alle jubelten.",
        "Geb. 1950 in Wien. |Lebt in Graz.",
        "Was? |Wer? |Wo?",
    ],
    "ja": [
        "雨です。|傘を持って。",
        "本当ですか？|はい！|行こう。",
        "「行く。」と言った。|明日だ。",
    ],
    "zh": ["下雨了。|带伞吧！|好吗？", "他说：“好。”她笑了。"],
    "ar": ["هل تأتي؟ |نعم."],
    "hi": ["बारिश हो रही है। |छाता लो।"],
    "el": ["Έρχεσαι\u037e |Ναι."],
    "es": ["¿Vienes? |¡Claro! |Vamos.", "Llegó tarde. |¿Por qué?"],
    "ru": ["Идёт дождь. |Возьми зонт!", "Ты идёшь? |Нет."],
    "it": ["Piove. |È tardi. |Andiamo!"],
}
TABLE = [(language, case) for language, cases in CASES.items() for case in cases]
# What the rules get wrong, and what they say instead: a reader knows more than a word before it.
KNOWN_MISSES = [
    (None, "We compared A vs. B. |B won."),
    ("de", "Wir treffen uns um 12. |Bring Brot mit."),  # as in "am 12. März"
    (None, "Fahr nach Frankfurt a. M. |Dort wartet sie."),  # as in the French "M. Dort"
    ("en", "Vote for Pedro P. |Farmers do."),
    ("en", "“Now!” Peter shouted."),  # as in “Now!” |Peter ran.
]


def test_the_table_is_long_enough() -> None:
    assert len({case for _, case in TABLE}) == len(TABLE) >= 150


@pytest.mark.parametrize(("language", "case"), TABLE)
def test_sentences_end_where_a_reader_sees_it(language: str, case: str) -> None:
    text, expected = case.replace("|", ""), case.split("|")
    assert split_sentences(text, language) == expected
    assert split_sentences(text) == expected
    assert split_sentences(text, f"{language.upper()}_XX") == expected


@pytest.mark.parametrize(("language", "case"), KNOWN_MISSES)
@pytest.mark.xfail(strict=True, reason="no rule tells these apart")
def test_known_misses(language: str | None, case: str) -> None:
    assert split_sentences(case.replace("|", ""), language) == case.split("|")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \n ", ["  \n "]),
        ("a\nb", ["a\n", "b"]),
        ("Mr.\nSmith", ["Mr.\n", "Smith"]),  # a line break always ends a sentence
        ("a\r\n\r\n  b", ["a\r\n\r\n  ", "b"]),
        ("  a. B", ["  a. ", "B"]),
        ("a\u2028b\x85c\x0cd", ["a\u2028", "b\x85", "c\x0c", "d"]),
        ("\ud800a. \udc00", ["\ud800a. ", "\udc00"]),
    ],
)
def test_white_space_belongs_to_the_sentence_before_it(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n", [Segment("", "", " \n")]),
        ("Un. Deux.\n", [Segment("", "Un.", " "), Segment("", "Deux.", "\n")]),
        ("  - un\n  - deux", [Segment("  - ", "un", "\n  "), Segment("- ", "deux", "")]),
        ("2) Close it.", [Segment("2) ", "Close it.", "")]),
        ("1. Open it.", [Segment("1. ", "Open it.", "")]),
        ("3. Mai ist frei.", [Segment("", "3. Mai ist frei.", "")]),
        ("— Oui.\t", [Segment("— ", "Oui.", "\t")]),
        ("> quoted", [Segment("> ", "quoted", "")]),
        ("-5 degrees", [Segment("", "-5 degrees", "")]),
    ],
)
def test_segments_keep_spacing_and_list_marks_apart(text: str, expected: list[Segment]) -> None:
    assert segment(text) == expected


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


HARD = [
    "a",
    ".",
    "a.",
    ". ",
    "1. ",
    "J. ",
    "?) ",
    "! 😀 ",
    ":) ",
    "! :)",
    "(. ",
    "! »",
    "a. B. ",
    "! A",
]


@pytest.mark.parametrize("unit", HARD)
def test_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    small, large = unit * (20_000 // len(unit)), unit * (200_000 // len(unit))
    assert "".join(split_sentences(large)) == large
    once = min(seconds(lambda: split_sentences(small)) for _ in range(3))
    assert seconds(lambda: split_sentences(large)) < 40 * max(once, 0.005)  # 10 if linear


@pytest.mark.parametrize(
    ("sentence", "limit", "expected"),
    [
        ("short", 10, ["short"]),
        ("", 10, []),
        ("one two; three, four", 15, ["one two; ", "three, four"]),
        ("one two, three four", 12, ["one two, ", "three four"]),
        ("black tea and cake", 14, ["black tea ", "and cake"]),
        ("one two three", 8, ["one two ", "three"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("e\u0301e\u0301e\u0301", 3, ["e\u0301", "e\u0301", "e\u0301"]),
        ("👩\u200d🚀👩\u200d🚀", 4, ["👩\u200d🚀", "👩\u200d🚀"]),
        ("🇫🇷🇩🇪", 3, ["🇫🇷", "🇩🇪"]),
        ("\ud83d\ude00\ud83d\ude00", 3, ["\ud83d\ude00", "\ud83d\ude00"]),
        ("下雨了，带伞吧", 5, ["下雨了，", "带伞吧"]),
    ],
)
def test_a_long_sentence_is_cut_at_its_best_place(
    sentence: str, limit: int, expected: list[str]
) -> None:
    assert split_long(sentence, limit) == expected


def test_ten_thousand_words_are_cut_by_a_count_of_words() -> None:
    line = " ".join(f"word{n}" for n in range(10_000))
    parts = split_long(line, 64, lambda part: len(part.split()))
    assert "".join(parts) == line
    assert max(len(part.split()) for part in parts) == 64
    assert len(parts) == 157


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        split_long("a", 0)
