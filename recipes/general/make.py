"""Make English-French pairs with names, places, numbers, dates, times, prices and units.

    python recipes/general/make.py names-and-numbers.tsv [--pairs 60000] [--seed 1]

A corpus of sentences has few of each name and each number, and a model that never met them spells
them wrongly. These pairs are put together from templates: first names are copied, well-known
places are translated, numbers, dates and times follow the rules of each language. Every sentence
and list here is our own.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path

FIRST_NAMES = """
Adam Adrien Agathe Alain Albert Alex Alexandre Alice Aline Alison Amanda Amélie Amir Amy Anaïs André
Andrea Andrew Angela Anita Anna Anne Anthony Antoine Arnaud Arthur Aurélie Barbara Basile Benjamin
Benoît Bernard Bertrand Bruno Camille Carlos Carla Carole Caroline Catherine Cécile Céline Charles
Charlotte Chloé Chris Christian Christine Claire Clara Claude Clément Colin Corinne Damien Daniel
Danielle David Deborah Delphine Denis Diana Diane Didier Dominique Donald Dorothy Édouard Edward
Eleanor Élise Elizabeth Ellen Élodie Emily Emma Emmanuel Éric Erica Erik Estelle Éva Fabien Fanny
Fatima Félix Fiona Florence Florian Francis Franck François Françoise Frank Fred Gabriel Gabrielle
Gaëlle Geneviève George Georges Gérard Gilles Grace Grégory Guillaume Guy Hanna Harry Hassan Heather
Hélène Henri Henry Hugo Ian Ibrahim Inès Irène Isabelle Ivan Jack Jacques James Jane Janet Jason
Jean Jeanne Jennifer Jérôme Jessica Joan Joe John Jonathan José Joseph Joséphine Joyce Juan Judith
Jules Julia Julie Julien Juliette Justine Karen Karim Kate Kevin Kim Larry Laura Laurence Laurent
Léa Leila Léo Leonard Lily Linda Lisa Louis Louise Luc Lucas Lucie Lucy Ludovic Lydia Madeleine
Magali Manon Marc Marcel Margaret Margot Maria Marianne Marie Marine Marion Mark Marta Martha Martin
Martine Mary Mathieu Mathilde Matthew Maurice Max Maxime Mehdi Mélanie Michael Michel Michelle Mike
Mohamed Monique Nadia Nancy Naomi Natalie Nathalie Nathan Nicolas Nicole Nina Noah Noémie Nora Odile
Olga Oliver Olivia Olivier Oscar Pablo Pamela Pascal Patrice Patricia Patrick Paul Paula Pauline
Pedro Peter Philip Philippe Pierre Quentin Rachel Raphaël Raymond Rebecca Régis Rémi Renée Richard
Robert Robin Roger Romain Rosa Rose Ruth Ryan Sabine Sally Samantha Samir Samuel Sandra Sarah Scott
Sébastien Serge Sergio Sharon Simon Simone Sofia Sonia Sophie Stella Stéphane Stéphanie Stephen
Steven Susan Suzanne Sylvain Sylvie Tanya Teresa Théo Thérèse Thomas Tim Timothy Tina Tom Tony Valérie
Vanessa Vera Véronique Victor Victoria Vincent Virginie Walter William Xavier Yann Yasmine Yves
Yvonne Zoé
""".split()

SURNAMES = """
Adams Anderson Bailey Baker Barbier Bell Benoit Bernard Bertrand Blanc Bonnet Boucher Boyer Brown
Brun Campbell Carter Chevalier Clark Clement Collins Cook Cooper David Davies Denis Dubois Dufour
Dupont Durand Edwards Evans Faure Fischer Fontaine Foster Fournier Garcia Garnier Gauthier Girard
Gonzalez Gray Green Guerin Hall Harris Hill Howard Hughes Jackson Jenkins Johnson Jones Joly Kelly
Khan Kowalski Lambert Laurent Leclerc Lee Lefebvre Legrand Leroy Lewis Lopez Martin Martinez Masson
Mercier Miller Mitchell Moore Moreau Morel Morgan Morris Müller Murphy Nguyen Nicolas Novak Parker
Patel Perez Perrin Peterson Petit Phillips Picard Powell Price Reed Renaud Richard Richardson Rivera
Robert Roberts Robinson Rogers Rossi Rousseau Roux Russell Sanders Santos Schmidt Scott Silva Simon
Singh Smith Stewart Taylor Thomas Thompson Torres Turner Vincent Walker Watson White Williams Wilson
Wood Wright Young
""".split()

# Cities that both languages write alike, and those that they do not.
SAME_CITIES = """
Amsterdam Annecy Ankara Avignon Bagdad Bamako Bangkok Bayonne Belfast Berlin Besançon Birmingham Bogota
Bordeaux Boston Brest Bristol Bucarest Budapest Caen Cannes Cardiff Casablanca Chicago Colmar Dakar
Dallas Dijon Dublin Florence Glasgow Grenoble Hambourg Helsinki Houston Istanbul Kiev Kyoto Leeds
Lille Limoges Liverpool Lorient Lyon Madrid Manchester Manille Marseille Melbourne Metz Miami Milan
Montpellier Munich Nairobi Nancy Nantes Naples Nice Nîmes Nottingham Orléans Osaka Oslo Oxford Paris
Pau Perpignan Poitiers Prague Quimper Reims Rennes Riga Rome Rotterdam Rouen Seattle Sofia Stockholm
Strasbourg Stuttgart Sydney Tokyo Toronto Toulon Toulouse Tours Turin Valence Vancouver Washington
Zagreb
""".split()
ONLY_FRENCH = {"Bagdad", "Bucarest", "Hambourg", "Kiev", "Manille"}
CITIES = [(city, city) for city in SAME_CITIES if city not in ONLY_FRENCH] + [
    ("Algiers", "Alger"), ("Antwerp", "Anvers"), ("Athens", "Athènes"), ("Barcelona", "Barcelone"),
    ("Basel", "Bâle"), ("Beijing", "Pékin"), ("Bern", "Berne"), ("Brussels", "Bruxelles"),
    ("Bucharest", "Bucarest"), ("Cologne", "Cologne"), ("Copenhagen", "Copenhague"),
    ("Dresden", "Dresde"), ("Edinburgh", "Édimbourg"), ("Frankfurt", "Francfort"),
    ("Geneva", "Genève"), ("Genoa", "Gênes"), ("Ghent", "Gand"), ("Hamburg", "Hambourg"),
    ("Krakow", "Cracovie"), ("Lisbon", "Lisbonne"), ("London", "Londres"),
    ("Luxembourg", "Luxembourg"), ("Mexico City", "Mexico"), ("Montreal", "Montréal"),
    ("Moscow", "Moscou"), ("New York", "New York"), ("Nuremberg", "Nuremberg"),
    ("Philadelphia", "Philadelphie"), ("Quebec City", "Québec"), ("San Francisco", "San Francisco"),
    ("São Paulo", "São Paulo"), ("Seoul", "Séoul"), ("Seville", "Séville"), ("Singapore", "Singapour"),
    ("Tunis", "Tunis"), ("Turin", "Turin"), ("Valencia", "Valence"), ("Venice", "Venise"),
    ("Vienna", "Vienne"), ("Warsaw", "Varsovie"),
]  # fmt: skip

# English name, French "in/to", French "from", French with its article.
COUNTRIES = [
    ("Algeria", "en Algérie", "d'Algérie", "l'Algérie"), ("Argentina", "en Argentine", "d'Argentine", "l'Argentine"),
    ("Australia", "en Australie", "d'Australie", "l'Australie"), ("Austria", "en Autriche", "d'Autriche", "l'Autriche"),
    ("Belgium", "en Belgique", "de Belgique", "la Belgique"), ("Brazil", "au Brésil", "du Brésil", "le Brésil"),
    ("Canada", "au Canada", "du Canada", "le Canada"), ("Chile", "au Chili", "du Chili", "le Chili"),
    ("China", "en Chine", "de Chine", "la Chine"), ("Colombia", "en Colombie", "de Colombie", "la Colombie"),
    ("Croatia", "en Croatie", "de Croatie", "la Croatie"), ("Denmark", "au Danemark", "du Danemark", "le Danemark"),
    ("Egypt", "en Égypte", "d'Égypte", "l'Égypte"), ("England", "en Angleterre", "d'Angleterre", "l'Angleterre"),
    ("Finland", "en Finlande", "de Finlande", "la Finlande"), ("France", "en France", "de France", "la France"),
    ("Germany", "en Allemagne", "d'Allemagne", "l'Allemagne"), ("Greece", "en Grèce", "de Grèce", "la Grèce"),
    ("Hungary", "en Hongrie", "de Hongrie", "la Hongrie"), ("India", "en Inde", "d'Inde", "l'Inde"),
    ("Indonesia", "en Indonésie", "d'Indonésie", "l'Indonésie"), ("Ireland", "en Irlande", "d'Irlande", "l'Irlande"),
    ("Italy", "en Italie", "d'Italie", "l'Italie"), ("Japan", "au Japon", "du Japon", "le Japon"),
    ("Kenya", "au Kenya", "du Kenya", "le Kenya"), ("Lebanon", "au Liban", "du Liban", "le Liban"),
    ("Mexico", "au Mexique", "du Mexique", "le Mexique"), ("Morocco", "au Maroc", "du Maroc", "le Maroc"),
    ("New Zealand", "en Nouvelle-Zélande", "de Nouvelle-Zélande", "la Nouvelle-Zélande"),
    ("Nigeria", "au Nigeria", "du Nigeria", "le Nigeria"), ("Norway", "en Norvège", "de Norvège", "la Norvège"),
    ("Peru", "au Pérou", "du Pérou", "le Pérou"), ("Poland", "en Pologne", "de Pologne", "la Pologne"),
    ("Portugal", "au Portugal", "du Portugal", "le Portugal"), ("Romania", "en Roumanie", "de Roumanie", "la Roumanie"),
    ("Russia", "en Russie", "de Russie", "la Russie"), ("Scotland", "en Écosse", "d'Écosse", "l'Écosse"),
    ("Senegal", "au Sénégal", "du Sénégal", "le Sénégal"), ("Spain", "en Espagne", "d'Espagne", "l'Espagne"),
    ("Sweden", "en Suède", "de Suède", "la Suède"), ("Switzerland", "en Suisse", "de Suisse", "la Suisse"),
    ("Thailand", "en Thaïlande", "de Thaïlande", "la Thaïlande"), ("Tunisia", "en Tunisie", "de Tunisie", "la Tunisie"),
    ("Turkey", "en Turquie", "de Turquie", "la Turquie"), ("Ukraine", "en Ukraine", "d'Ukraine", "l'Ukraine"),
    ("the United Kingdom", "au Royaume-Uni", "du Royaume-Uni", "le Royaume-Uni"),
    ("the United States", "aux États-Unis", "des États-Unis", "les États-Unis"),
    ("the Netherlands", "aux Pays-Bas", "des Pays-Bas", "les Pays-Bas"),
    ("Vietnam", "au Vietnam", "du Vietnam", "le Vietnam"), ("Wales", "au pays de Galles", "du pays de Galles", "le pays de Galles"),
]  # fmt: skip

LANGUAGES = [
    ("Arabic", "arabe"), ("Chinese", "chinois"), ("Dutch", "néerlandais"), ("English", "anglais"),
    ("French", "français"), ("German", "allemand"), ("Greek", "grec"), ("Italian", "italien"),
    ("Japanese", "japonais"), ("Polish", "polonais"), ("Portuguese", "portugais"),
    ("Russian", "russe"), ("Spanish", "espagnol"), ("Swedish", "suédois"), ("Turkish", "turc"),
]  # fmt: skip
DAYS = [
    ("Monday", "lundi"), ("Tuesday", "mardi"), ("Wednesday", "mercredi"), ("Thursday", "jeudi"),
    ("Friday", "vendredi"), ("Saturday", "samedi"), ("Sunday", "dimanche"),
]  # fmt: skip
MONTHS = [
    ("January", "janvier"), ("February", "février"), ("March", "mars"), ("April", "avril"),
    ("May", "mai"), ("June", "juin"), ("July", "juillet"), ("August", "août"),
    ("September", "septembre"), ("October", "octobre"), ("November", "novembre"),
    ("December", "décembre"),
]  # fmt: skip

# English singular, English plural, French singular, French plural, French gender.
THINGS = [
    ("apple", "apples", "pomme", "pommes", "f"), ("book", "books", "livre", "livres", "m"),
    ("bottle", "bottles", "bouteille", "bouteilles", "f"), ("brother", "brothers", "frère", "frères", "m"),
    ("car", "cars", "voiture", "voitures", "f"), ("cat", "cats", "chat", "chats", "m"),
    ("chair", "chairs", "chaise", "chaises", "f"), ("child", "children", "enfant", "enfants", "m"),
    ("cup", "cups", "tasse", "tasses", "f"), ("dog", "dogs", "chien", "chiens", "m"),
    ("egg", "eggs", "œuf", "œufs", "m"), ("email", "emails", "courriel", "courriels", "m"),
    ("file", "files", "fichier", "fichiers", "m"), ("folder", "folders", "dossier", "dossiers", "m"),
    ("house", "houses", "maison", "maisons", "f"), ("key", "keys", "clé", "clés", "f"),
    ("letter", "letters", "lettre", "lettres", "f"), ("message", "messages", "message", "messages", "m"),
    ("page", "pages", "page", "pages", "f"), ("photo", "photos", "photo", "photos", "f"),
    ("room", "rooms", "chambre", "chambres", "f"), ("sister", "sisters", "sœur", "sœurs", "f"),
    ("student", "students", "étudiant", "étudiants", "m"), ("table", "tables", "table", "tables", "f"),
    ("ticket", "tickets", "billet", "billets", "m"), ("window", "windows", "fenêtre", "fenêtres", "f"),
]  # fmt: skip
UNITS = [
    ("kilometre", "kilometres", "kilomètre", "kilomètres"), ("metre", "metres", "mètre", "mètres"),
    ("centimetre", "centimetres", "centimètre", "centimètres"), ("kilo", "kilos", "kilo", "kilos"),
    ("gram", "grams", "gramme", "grammes"), ("litre", "litres", "litre", "litres"),
    ("minute", "minutes", "minute", "minutes"), ("hour", "hours", "heure", "heures"),
    ("second", "seconds", "seconde", "secondes"), ("day", "days", "jour", "jours"),
    ("week", "weeks", "semaine", "semaines"), ("month", "months", "mois", "mois"),
    ("year", "years", "an", "ans"), ("degree", "degrees", "degré", "degrés"),
    ("euro", "euros", "euro", "euros"), ("dollar", "dollars", "dollar", "dollars"),
]  # fmt: skip
FEMININE_UNITS = {"minute", "heure", "seconde", "semaine"}
SYMBOLS = ["km", "m", "cm", "mm", "kg", "g", "l", "ml", "°C", "km/h", "MB", "GB", "W", "V", "Hz"]
FRENCH_SYMBOLS = {"MB": "Mo", "GB": "Go"}

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
PETITS = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
    "dix-sept dix-huit dix-neuf"
).split()
DIZAINES = "- - vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt".split()


def english_number(n: int) -> str:
    """The number in English words, up to 999,999."""
    if n < 20:
        return SMALL[n]
    if n < 100:
        return TENS[n // 10] + (f"-{SMALL[n % 10]}" if n % 10 else "")
    if n < 1000:
        rest = f" and {english_number(n % 100)}" if n % 100 else ""
        return f"{SMALL[n // 100]} hundred{rest}"
    rest = n % 1000
    link = " and " if 0 < rest < 100 else " "
    return f"{english_number(n // 1000)} thousand" + (link + english_number(rest) if rest else "")


def french_number(n: int, *, feminine: bool = False, last: bool = True) -> str:
    """The number in French words, up to 999,999. last: nothing follows, so vingt and cent may take
    their s."""
    one = "une" if feminine else "un"
    if n < 20:
        return one if n == 1 else PETITS[n]
    if n < 100:
        ten, unit = divmod(n, 10)
        if ten in (7, 9):
            unit += 10
        word = DIZAINES[ten]
        if unit == 0:
            return "quatre-vingts" if ten == 8 and last else word
        small = one if unit == 1 else PETITS[unit]
        return f"{word} et {small}" if unit in (1, 11) and ten < 8 else f"{word}-{small}"
    if n < 1000:
        hundreds, rest = divmod(n, 100)
        word = "cent" if hundreds == 1 else f"{PETITS[hundreds]} cent"
        if rest:
            return f"{word} {french_number(rest, feminine=feminine, last=last)}"
        return f"{word}s" if hundreds > 1 and last else word
    thousands, rest = divmod(n, 1000)
    word = "mille" if thousands == 1 else f"{french_number(thousands, last=False)} mille"
    return f"{word} {french_number(rest, feminine=feminine, last=last)}" if rest else word


def french_digits(n: int) -> str:
    """12 500: French groups digits with a space that does not break."""
    return f"{n:,}".replace(",", "\u00a0")


Pair = tuple[str, str]


class Templates:
    """Draws pairs. Each method is one kind of sentence."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def name(self) -> str:
        return self.random.choice(FIRST_NAMES)

    def clock(self) -> Pair:
        """A time of day."""
        draw = self.random
        hour, minute = draw.randrange(24), draw.choice([0, 0, 0, 5, 10, 15, 20, 30, 30, 40, 45, 50])
        french = f"{hour} h {minute:02}" if minute else f"{hour} h"
        if draw.random() < 0.5:
            half = "a.m." if hour < 12 else "p.m."
            short = (hour - 1) % 12 + 1
            return (f"{short}:{minute:02} {half}" if minute else f"{short} {half}"), french
        return f"{hour}:{minute:02}", (f"{hour} h {minute:02}" if minute else f"{hour} h")

    def spoken_clock(self) -> Pair:
        """A time in words: half past eight, huit heures et demie."""
        draw = self.random
        hour = draw.randrange(1, 12)
        heure = french_number(hour, feminine=True) + (" heure" if hour == 1 else " heures")
        kind = draw.randrange(6)
        if kind == 0:
            return f"{SMALL[hour]} o'clock", heure
        if kind == 1:
            return f"half past {SMALL[hour]}", f"{heure} et demie"
        if kind == 2:
            return f"a quarter past {SMALL[hour]}", f"{heure} et quart"
        if kind == 3:
            return f"a quarter to {SMALL[hour]}", f"{heure} moins le quart"
        minutes = draw.choice([5, 10, 20, 25])
        if kind == 4:
            return (
                f"{english_number(minutes)} past {SMALL[hour]}",
                f"{heure} {french_number(minutes)}",
            )
        return (
            f"{english_number(minutes)} to {SMALL[hour]}",
            f"{heure} moins {french_number(minutes)}",
        )

    def date(self, *, year: bool | None = None) -> Pair:
        """A date without an article: July 14, 1789; 14 juillet 1789."""
        draw = self.random
        day, (month, mois) = draw.randint(1, 28), draw.choice(MONTHS)
        jour = "1er" if day == 1 else str(day)
        with_year = draw.random() < 0.6 if year is None else year
        number = draw.choice([draw.randint(1400, 1900), draw.randint(1900, 2035)])
        if draw.random() < 0.5:
            english = f"{month} {day}" + (f", {number}" if with_year else "")
        else:
            english = f"{day} {month}" + (f" {number}" if with_year else "")
        return english, f"{jour} {mois}" + (f" {number}" if with_year else "")

    def number(self) -> int:
        draw = self.random
        return draw.choice(
            [draw.randint(2, 20), draw.randint(2, 99), draw.randint(21, 99), draw.randint(100, 999),
             draw.randint(1000, 20000)]
        )  # fmt: skip

    # Kinds of sentences

    def introductions(self) -> Pair:
        draw, name, other = self.random, self.name(), self.name()
        surname = draw.choice(SURNAMES)
        city, ville = draw.choice(CITIES)
        age = draw.randint(2, 99)
        return draw.choice([
            (f"My name is {name}.", f"Je m'appelle {name}."),
            (f"My name is {name} {surname}.", f"Je m'appelle {name} {surname}."),
            (f"I'm {name}.", f"Je suis {name}."),
            (f"My name is {name} and I live in {city}.", f"Je m'appelle {name} et j'habite à {ville}."),
            (f"My name is {name} and I am {english_number(age)} years old.",
             f"Je m'appelle {name} et j'ai {french_number(age)} ans."),
            (f"This is my friend {name}.", f"Voici mon amie {name}." if name in FEMININE else f"Voici mon ami {name}."),
            (f"{name} and {other} are friends.",
             f"{name} et {other} sont {'amies' if {name, other} <= FEMININE else 'amis'}."),
            (f"Hello, {name}!", f"Bonjour, {name} !"), (f"Hi {name}!", f"Salut {name} !"),
            (f"Good morning, {name}.", f"Bonjour, {name}."), (f"Good evening, {name}.", f"Bonsoir, {name}."),
            (f"Goodbye, {name}!", f"Au revoir, {name} !"), (f"Thank you, {name}.", f"Merci, {name}."),
            (f"See you tomorrow, {name}.", f"À demain, {name}."),
            (f"Happy birthday, {name}!", f"Joyeux anniversaire, {name} !"),
            (f"Dear {name},", f"Chère {name}," if name in FEMININE else f"Cher {name},"),
            (f"Mr {surname} is not here.", f"M. {surname} n'est pas là."),
            (f"Mrs {surname} called this morning.", f"Mme {surname} a appelé ce matin."),
            (f"Good morning, Mr {surname}.", f"Bonjour, Monsieur {surname}."),
            (f"Thank you, Mrs {surname}.", f"Merci, Madame {surname}."),
            (f"{name} {surname} works in {city}.", f"{name} {surname} travaille à {ville}."),
            (f"Who is {name}?", f"Qui est {name} ?"), (f"Where is {name}?", f"Où est {name} ?"),
            (f"Do you know {name} {surname}?", f"Connaissez-vous {name} {surname} ?"),
            (f"I met {name} in {city}.", f"J'ai rencontré {name} à {ville}."),
            (f"{name} gave {other} a book.", f"{name} a donné un livre à {other}."),
        ])  # fmt: skip

    def places(self) -> Pair:
        draw, name, other = self.random, self.name(), self.name()
        (city, ville), (city2, ville2) = draw.sample(CITIES, 2)
        country, en, de, pays = draw.choice(COUNTRIES)
        day, jour = draw.choice(DAYS)
        language, langue = draw.choice(LANGUAGES)
        capital = pays[0].upper() + pays[1:]
        upper = country[0].upper() + country[1:]
        le_langue = f"l'{langue}" if langue[0] in "aeiouéè" else f"le {langue}"
        return draw.choice([
            (f"I live in {city}.", f"J'habite à {ville}."),
            (f"We live in {country}.", f"Nous habitons {en}."),
            (f"{name} lives in {city}.", f"{name} habite à {ville}."),
            (f"{name} and {other} are going to {city} tomorrow.", f"{name} et {other} vont à {ville} demain."),
            (f"{name} is going to {country} on {day}.", f"{name} va {en} {jour}."),
            (f"I come from {country}.", f"Je viens {de}."),
            (f"{name} comes from {city}.", f"{name} vient de {ville}." if ville[0] not in "AEIOUÉ" else f"{name} vient d'{ville}."),
            (f"Have you ever been to {country}?", f"Êtes-vous déjà allé {en} ?"),
            (f"The train from {city} to {city2} is late.",
             f"Le train {'d’' if ville[0] in 'AEIOUÉ' else 'de '}{ville} à {ville2} est en retard.".replace("’", "'")),
            (f"How far is it from {city} to {city2}?",
             f"Quelle est la distance entre {ville} et {ville2} ?"),
            (f"He was born in {city}.", f"Il est né à {ville}."),
            (f"She was born in {country}.", f"Elle est née {en}."),
            (f"I would like to visit {country}.", f"J'aimerais visiter {pays}."),
            (f"{upper} is a beautiful country.", f"{capital} est un beau pays.")
            if not pays.startswith("les") else (f"I love {country}.", f"J'aime {pays}."),
            (f"It is raining in {city}.", f"Il pleut à {ville}."),
            (f"I speak {language}.", f"Je parle {langue}."),
            (f"I don't speak {language}.", f"Je ne parle pas {langue}."),
            (f"Do you speak {language}?", f"Parlez-vous {langue} ?"),
            (f"She is learning {language}.", f"Elle apprend {le_langue}."),
            (f"{city}", f"{ville}"), (f"{upper}", f"{capital}"),
        ])  # fmt: skip

    def numbers(self) -> Pair:
        draw, name = self.random, self.name()
        n = self.number()
        _, thing, _, thing_fr, gender = draw.choice(THINGS)
        feminine = gender == "f"
        small = draw.randint(2, 99)
        words, mots = english_number(small), french_number(small, feminine=feminine)
        digits, chiffres = f"{n:,}", french_digits(n)
        price = draw.choice(
            [f"{n}", f"{draw.randint(1, 99)}.{draw.choice(['50', '99', '95', '20'])}"]
        )
        d_things = f"d'{thing_fr}" if thing_fr[0] in "aeiouœé" else f"de {thing_fr}"
        return draw.choice([
            (f"I have {words} {thing}.", f"J'ai {mots} {thing_fr}."),
            (f"{name} has {words} {thing}.", f"{name} a {mots} {thing_fr}."),
            (f"There are {small} {thing}.", f"Il y a {small} {thing_fr}."),
            (f"There are {words} {thing} on the table.", f"Il y a {mots} {thing_fr} sur la table."),
            (f"I am {words} years old.", f"J'ai {french_number(small)} ans."),
            (f"She is {small} years old.", f"Elle a {small} ans."),
            (f"{name} is {words}.", f"{name} a {french_number(small)} ans."),
            (f"{digits} {thing}", f"{chiffres} {thing_fr}"),
            (f"{english_number(n)}", f"{french_number(n)}"),
            (f"More than {digits} people came.", f"Plus de {chiffres} personnes sont venues."),
            (f"It costs {price} euros.", f"Cela coûte {price.replace('.', ',')} euros."),
            (f"It costs ${price}.", f"Cela coûte {price.replace('.', ',')} $."),
            (f"The price is €{price}.", f"Le prix est de {price.replace('.', ',')} €."),
            (f"{small}% of the {thing}", f"{small} % des {thing_fr}"),
            (f"How many {thing} do you have?", f"Combien {d_things} avez-vous ?"),
            (f"Room {n}", f"Chambre {n}"), (f"Page {small}", f"Page {small}"),
            (f"Chapter {small}", f"Chapitre {small}"), (f"Step {small % 20 + 1} of 21", f"Étape {small % 20 + 1} sur 21"),
            (f"{small} {thing} selected", f"{small} {thing_fr} {'sélectionnées' if feminine else 'sélectionnés'}"),
            (f"Add {words} {thing}.", f"Ajoutez {mots} {thing_fr}."),
        ])  # fmt: skip

    def dates_and_times(self) -> Pair:
        draw, name = self.random, self.name()
        (clock, heure), (spoken, parlee) = self.clock(), self.spoken_clock()
        date, jour_mois = self.date()
        day, jour = draw.choice(DAYS)
        month, mois = draw.choice(MONTHS)
        year = draw.randint(1700, 2035)
        train = draw.choice(
            [("train", "Le train", "part"), ("bus", "Le bus", "part"), ("plane", "L'avion", "part")]
        )
        en_mois = f"en {mois}"
        return draw.choice([
            (f"It is {spoken}.", f"Il est {parlee}."),
            (f"The {train[0]} leaves at {clock}.", f"{train[1]} {train[2]} à {heure}."),
            (f"The {train[0]} leaves at {spoken}.", f"{train[1]} {train[2]} à {parlee}."),
            (f"The meeting is at {clock} on {day}.", f"La réunion est à {heure} {jour}."),
            (f"The meeting starts at {clock}.", f"La réunion commence à {heure}."),
            (f"We will meet at {clock} on {day}.", f"Nous nous retrouverons {jour} à {heure}."),
            (f"The shop opens at {clock}.", f"Le magasin ouvre à {heure}."),
            (f"{name} will arrive on {day} at {clock}.", f"{name} arrivera {jour} à {heure}."),
            (f"Today is {day}.", f"Aujourd'hui, nous sommes {jour}."),
            (f"It is {day}.", f"Nous sommes {jour}."), (f"See you on {day}!", f"À {jour} !"),
            (f"{day}, {date}", f"{jour} {jour_mois}"), (f"{date}", f"{jour_mois}"),
            (f"{date}", f"Le {jour_mois}"),
            (f"She was born on {date}.", f"Elle est née le {jour_mois}."),
            (f"The law was passed on {date}.", f"La loi a été adoptée le {jour_mois}."),
            (f"I will be back on {date}.", f"Je serai de retour le {jour_mois}."),
            (f"It happened in {year}.", f"C'est arrivé en {year}."),
            (f"In {month} {year}, {name} left.", f"En {mois} {year}, {name} est parti{'e' if name in FEMININE else ''}."),
            (f"I'm on holiday in {month}.", f"Je suis en vacances {en_mois}."),
            (f"Every {day} at {spoken}", f"Tous les {jour}s à {parlee}"),
            (f"{clock}", f"{heure}"), (f"{day}", f"{jour}"), (f"{month}", f"{mois}"),
        ])  # fmt: skip

    def measures(self) -> Pair:
        draw = self.random
        n = draw.choice([draw.randint(2, 12), draw.randint(2, 99), draw.randint(100, 900)])
        _, many, un, plusieurs = draw.choice(UNITS)
        words = english_number(n)
        mots = french_number(n, feminine=un in FEMININE_UNITS)
        symbol = draw.choice(SYMBOLS)
        symbole = FRENCH_SYMBOLS.get(symbol, symbol)
        decimal = f"{draw.randint(0, 99)}.{draw.randint(1, 9)}"
        virgule = decimal.replace(".", ",")
        span, duree = draw.choice(
            [
                ("days", "jours"),
                ("weeks", "semaines"),
                ("months", "mois"),
                ("years", "ans"),
                ("hours", "heures"),
            ]
        )
        feminine = duree in ("semaines", "heures")
        return draw.choice([
            (f"{n} {many}", f"{n} {plusieurs}"), (f"{words} {many}", f"{mots} {plusieurs}"),
            (f"{decimal} {symbol}", f"{virgule} {symbole}"), (f"{n} {symbol}", f"{n} {symbole}"),
            (f"It weighs {decimal} kg.", f"Il pèse {virgule} kg."),
            (f"The distance is {n} km.", f"La distance est de {n} km."),
            (f"The temperature is {n % 45} °C.", f"La température est de {n % 45} °C."),
            (f"The file is {decimal} MB.", f"Le fichier fait {virgule} Mo."),
            (f"It has been raining for {words} {span}.",
             f"Il pleut depuis {french_number(n, feminine=feminine)} {duree}."),
            (f"I have been waiting for {n} {span}.", f"J'attends depuis {n} {duree}."),
            (f"He left {words} {span} ago.", f"Il est parti il y a {french_number(n, feminine=feminine)} {duree}."),
            (f"We will be there in {words} {span}.",
             f"Nous serons là dans {french_number(n, feminine=feminine)} {duree}."),
            (f"It takes {n} {span}.", f"Cela prend {n} {duree}."),
            (f"The speed limit is {n % 13 * 10 + 10} km/h.", f"La vitesse est limitée à {n % 13 * 10 + 10} km/h."),
        ])  # fmt: skip

    def pairs(self) -> Iterator[Pair]:
        """Pairs of all kinds, without end."""
        kinds: list[Callable[[], Pair]] = [
            self.introductions, self.places, self.numbers, self.dates_and_times, self.measures,
        ]  # fmt: skip
        while True:
            english, french = self.random.choice(kinds)()
            yield english.replace("..", "."), french  # "p.m." ends a sentence by itself


FEMININE = set(
    "Agathe Alice Aline Alison Amanda Amélie Amy Anaïs Angela Anita Anna Anne Aurélie Barbara Camille Carla "
    "Carole Caroline Catherine Cécile Céline Charlotte Chloé Christine Claire Clara Corinne Danielle Deborah "
    "Delphine Diana Diane Dorothy Eleanor Élise Elizabeth Ellen Élodie Emily Emma Erica Estelle Éva Fanny Fatima "
    "Fiona Florence Françoise Gabrielle Gaëlle Geneviève Grace Hanna Heather Hélène Inès Irène Isabelle Jane Janet "
    "Jeanne Jennifer Jessica Joan Joséphine Joyce Judith Julia Julie Juliette Justine Karen Kate Laura Laurence Léa "
    "Leila Lily Linda Lisa Louise Lucie Lucy Lydia Madeleine Magali Manon Margaret Margot Maria Marianne Marie "
    "Marine Marion Marta Martha Martine Mary Mathilde Mélanie Michelle Monique Nadia Nancy Naomi Natalie Nathalie "
    "Nicole Nina Noémie Nora Odile Olga Olivia Pamela Patricia Paula Pauline Rachel Rebecca Renée Rosa Rose Ruth "
    "Sabine Sally Samantha Sandra Sarah Sharon Simone Sofia Sonia Sophie Stella Stéphanie Susan Suzanne Sylvie "
    "Tanya Teresa Thérèse Tina Valérie Vanessa Vera Véronique Victoria Virginie Yasmine Yvonne Zoé".split()
)


def main() -> None:
    """Write distinct pairs to a tab-separated file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--pairs", type=int, default=60_000, help="how many pairs [60000]")
    parser.add_argument("--seed", type=int, default=1, help="draws the pairs [1]")
    options = parser.parse_args()
    seen: dict[Pair, None] = {}
    for pair in Templates(options.seed).pairs():
        seen.setdefault(pair)
        if len(seen) >= options.pairs:
            break
    text = "".join(f"{english}\t{french}\n" for english, french in seen)
    options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
