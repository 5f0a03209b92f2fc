"""The databases: two tables each, the second pointing at the first, and the values that their rows are drawn from.

A column is drawn from what stands behind it: words (the first column of a table is its label, no two rows share one) or
numbers. No two columns of a database have the same name, so a query never has to say whose column it means. What is
held out of training shares no table with it, and no value.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

Value = str | int | float
Rows = dict[str, list[list[Value]]]

PARENTS, CHILDREN = 5, 10  #: rows of the two tables
KINDS = 3  #: different words in a column that is no label


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    noun: str
    nouns: str
    columns: dict[str, Sequence[Value]]

    @property
    def label(self) -> str:
        return next(iter(self.columns))

    @property
    def numbers(self) -> list[str]:
        return [name for name, pool in self.columns.items() if not isinstance(pool[0], str)]

    @property
    def kinds(self) -> list[str]:
        """Columns of words in which rows agree."""
        return [name for name, pool in self.columns.items() if isinstance(pool[0], str) and name != self.label]


@dataclass(frozen=True, slots=True)
class Database:
    name: str
    parent: Table
    child: Table
    key: str  #: of the parent
    link: str  #: the child's column that holds it

    @property
    def schema(self) -> str:
        """Statements that make the tables."""
        key, link = f"{self.key} INTEGER PRIMARY KEY", f"{self.link} INTEGER REFERENCES {self.parent.name}({self.key})"
        parent, child = ", ".join([key, *_typed(self.parent)]), ", ".join([*_typed(self.child), link])
        return f"CREATE TABLE {self.parent.name} ({parent});\nCREATE TABLE {self.child.name} ({child});"

    @property
    def short(self) -> str:
        """The schema as a prompt shows it."""
        parent = ", ".join([self.key, *self.parent.columns])
        child = ", ".join([*self.child.columns, f"{self.link} -> {self.parent.name}.{self.key}"])
        return f"{self.parent.name}({parent})\n{self.child.name}({child})"

    def rows(self, rng: random.Random) -> Rows:
        """Fresh rows of both tables. Each parent has a child; numbers and labels are never the same twice."""
        keys = rng.sample(range(1, 20), PARENTS)
        owners = keys + rng.choices(keys, weights=range(PARENTS), k=CHILDREN - PARENTS)
        rng.shuffle(owners)
        parents = [[key, *row] for key, row in zip(keys, _drawn(self.parent, PARENTS, rng), strict=True)]
        children = [[*row, owner] for row, owner in zip(_drawn(self.child, CHILDREN, rng), owners, strict=True)]
        return {self.parent.name: parents, self.child.name: children}


def _typed(table: Table) -> list[str]:
    types = {str: "TEXT", int: "INTEGER", float: "REAL"}
    return [f"{name} {types[type(pool[0])]}" for name, pool in table.columns.items()]


def _drawn(table: Table, count: int, rng: random.Random) -> list[list[Value]]:
    kinds = table.kinds
    columns = [
        rng.choices(rng.sample(pool, KINDS), k=count) if name in kinds else rng.sample(pool, count)
        for name, pool in table.columns.items()
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def table(name: str, nouns: str, /, **columns: Sequence[Value] | str) -> Table:
    """`nouns`: one and many; columns: numbers, or words in a line, between commas where they have spaces."""
    noun, many = (word.replace("_", " ") for word in nouns.split())
    pools = {column: listed(pool) if isinstance(pool, str) else pool for column, pool in columns.items()}
    return Table(name, noun, many, pools)


def listed(line: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in (line.split(",") if "," in line else line.split()))


def tenths(least: int, most: int) -> tuple[float, ...]:
    return tuple(number / 10 for number in range(least * 10 + 1, most * 10))


PEOPLE = listed(
    "Alice Amir Anna Ben Carla Daniel Elena Emma Felix Grace Hana Henry Ivan Jonas Julia Karim Laura Leo Lucas Maria "
    "Marta Nina Noah Olga Omar Paula Pedro Rosa Sofia Tom Victor Yuki"
)
CITIES = listed("Athens Berlin Boston Cairo Chicago Delhi Dublin Lima Lisbon London Madrid Milan Oslo Paris Rome Tokyo")
COUNTRIES = listed("Brazil Canada Chile China Egypt France Germany India Italy Japan Kenya Mexico Norway Spain Sweden")
COLORS = listed("black blue brown gray green orange red white yellow")
YEARS = range(1960, 2024)

SEEN = (
    Database(
        "concerts",
        table("singer", "singer singers", singer_name=PEOPLE, country=COUNTRIES, age=range(18, 70)),
        table(
            "concert",
            "concert concerts",
            title="Night Dawn Echo Storm River Velvet Neon Gold Thunder Mirror Comet Tides",
            city=CITIES,
            year=YEARS,
            attendance=range(200, 9000, 50),
        ),
        "id",
        "singer_id",
    ),
    Database(
        "pets",
        table("owner", "owner owners", name=PEOPLE, city=CITIES, income=range(20000, 90000, 1000)),
        table(
            "pet",
            "pet pets",
            nickname="Rex Bella Coco Luna Max Milo Ruby Simba Daisy Rocky Toby Lucky",
            species="dog cat rabbit parrot hamster",
            color=COLORS,
            weight=range(1, 40),
        ),
        "owner_id",
        "owner_id",
    ),
    Database(
        "flights",
        table(
            "airline",
            "airline airlines",
            airline_name="AirNova, SkyJet, BlueWing, Polar Air, Sunline, Condor, Jetway, Aerolux",
            country=COUNTRIES,
            fleet_size=range(5, 300),
        ),
        table(
            "flight",
            "flight flights",
            code=tuple(f"F{number}" for number in range(100, 999, 7)),
            origin=CITIES,
            distance=range(200, 9000, 10),
            price=range(40, 1500, 5),
        ),
        "id",
        "airline_id",
    ),
    Database(
        "books",
        table("author", "author authors", author_name=PEOPLE, nationality=COUNTRIES, birth_year=range(1900, 1995)),
        table(
            "book",
            "book books",
            title="Ashes, The Door, Salt, Winter Sun, Harbor, Glass City, Maps, Silence, The Key, Orchard, Embers",
            genre="fantasy crime romance history poetry",
            pages=range(80, 900),
            price=tenths(5, 60),
        ),
        "author_id",
        "author_id",
    ),
    Database(
        "school",
        table(
            "teacher",
            "teacher teachers",
            name=PEOPLE,
            subject="math physics music biology art chemistry",
            salary=range(25000, 80000, 500),
        ),
        table(
            "student",
            "student students",
            student_name=PEOPLE,
            hometown=CITIES,
            grade=tenths(1, 10),
            age=range(11, 22),
        ),
        "id",
        "teacher_id",
    ),
    Database(
        "football",
        table(
            "team",
            "team teams",
            team_name="Lions Eagles Bears Sharks Wolves Tigers Hawks Bulls Falcons",
            city=CITIES,
            founded=range(1880, 2010),
        ),
        table(
            "player",
            "player players",
            name=PEOPLE,
            position="goalkeeper defender midfielder forward",
            goals=range(60),
            height=range(160, 210),
        ),
        "team_id",
        "team_id",
    ),
    Database(
        "movies",
        table("director", "director directors", name=PEOPLE, country=COUNTRIES, awards=range(40)),
        table(
            "movie",
            "movie movies",
            title="Orbit, Red Lake, Vertigo, The Heist, Sunrise, Exile, Lost Coast, Phantom, Ember, Runaway, Zero",
            genre="drama comedy horror action western",
            year=YEARS,
            budget=range(1, 200),
        ),
        "id",
        "director_id",
    ),
    Database(
        "employees",
        table(
            "departments",
            "department departments",
            department_name="Sales Finance Legal Marketing Research Support Design Logistics",
            building="North South East West Central",
            budget=range(100000, 900000, 5000),
        ),
        table(
            "employees",
            "employee employees",
            name=PEOPLE,
            job="engineer clerk manager analyst driver",
            salary=range(20000, 99000, 500),
            age=range(19, 66),
        ),
        "id",
        "department_id",
    ),
    Database(
        "restaurants",
        table("chefs", "chef chefs", chef_name=PEOPLE, nationality=COUNTRIES, experience=range(1, 40)),
        table(
            "restaurants",
            "restaurant restaurants",
            name="Olive, Saffron, The Oak, Basilico, Mango, Lotus, Cedar, Pepper, Anchor, Terra, Fig",
            cuisine="Italian Thai Mexican Indian Greek",
            seats=range(10, 150),
            rating=tenths(1, 5),
        ),
        "chef_id",
        "chef_id",
    ),
    Database(
        "cars",
        table(
            "maker",
            "maker makers",
            maker_name="Alfa Volta Nordic Kaiser Suzuka Fiore Atlas Orion",
            country=COUNTRIES,
            workers=range(500, 60000, 100),
        ),
        table(
            "car",
            "car cars",
            model="Astra Bolt Civic Dart Eon Fuego Golf Ibex Jazz Kite Leon Mira",
            color=COLORS,
            horsepower=range(50, 500, 5),
            price=range(8000, 90000, 500),
        ),
        "id",
        "maker_id",
    ),
    Database(
        "museum",
        table(
            "gallery",
            "gallery galleries",
            gallery_name="Tate Prado Uffizi Orsay Albertina Louvre Belvedere",
            city=CITIES,
            visitors=range(1000, 90000, 500),
        ),
        table(
            "painting",
            "painting paintings",
            title="Lilies, The Kiss, Dusk, Harvest, Bathers, Irises, Nocturne, Sowers, Guitar, The Bridge, Dawn",
            painter=PEOPLE,
            style="cubism realism baroque impressionism",
            year=range(1600, 1960),
        ),
        "id",
        "gallery_id",
    ),
    Database(
        "hotels",
        table(
            "hotel",
            "hotel hotels",
            hotel_name="Ritz Savoy Plaza Astoria Regal Bristol Carlton Hilltop",
            city=CITIES,
            stars=range(1, 8),
        ),
        table(
            "room",
            "room rooms",
            room_code=tuple(f"R{number}" for number in range(100, 400, 9)),
            type="single double suite family",
            price=range(40, 600, 5),
            area=range(10, 90),
        ),
        "hotel_id",
        "hotel_id",
    ),
    Database(
        "library",
        table("member", "member members", member_name=PEOPLE, town=CITIES, join_year=range(1990, 2024)),
        table(
            "loan",
            "loan loans",
            book="Dracula Emma Faust Hamlet Ivanhoe Macbeth Odyssey Persuasion Ulysses Utopia Candide Beloved",
            status="returned overdue open lost",
            days=range(1, 90),
            fine=tenths(0, 20),
        ),
        "id",
        "member_id",
    ),
    Database(
        "shops",
        table("customers", "customer customers", name=PEOPLE, country=COUNTRIES, points=range(10, 900)),
        table(
            "orders",
            "order orders",
            product="lamp chair desk sofa shelf mirror carpet clock vase bench stool bed",
            status="shipped pending cancelled paid",
            quantity=range(1, 40),
            amount=range(20, 900),
        ),
        "customer_id",
        "customer_id",
    ),
    Database(
        "hospital",
        table(
            "doctors",
            "doctor doctors",
            name=PEOPLE,
            specialty="surgery cardiology neurology oncology pediatrics",
            experience=range(1, 40),
        ),
        table(
            "patients",
            "patient patients",
            patient_name=PEOPLE,
            disease="flu asthma diabetes anemia migraine",
            age=range(1, 95),
            weight=range(20, 120),
        ),
        "doctor_id",
        "doctor_id",
    ),
    Database(
        "rivers",
        table(
            "country",
            "country countries",
            country_name=COUNTRIES,
            continent="Africa Asia Europe America",
            population=range(2, 900),
        ),
        table(
            "river",
            "river rivers",
            river_name="Amber Arno Birch Clear Drava Elbe Indigo Loire Neva Severn Tagus Volta",
            quality="good poor fair excellent",
            length=range(100, 6000, 10),
            depth=range(1, 60),
        ),
        "id",
        "country_id",
    ),
    Database(
        "games",
        table(
            "studio",
            "studio studios",
            studio_name="Pixelforge Redbird Moonlit Ironworks Nimbus Vortex Lumen",
            city=CITIES,
            staff=range(5, 900),
        ),
        table(
            "game",
            "game games",
            title="Blastoff Chess Drift Farmland Gravity Kingdoms Labyrinth Puzzler Racer Skyline Titan Zombies",
            platform="mobile console desktop web",
            release_year=range(1990, 2024),
            score=tenths(1, 10),
        ),
        "studio_id",
        "studio_id",
    ),
    Database(
        "courses",
        table(
            "professor",
            "professor professors",
            professor_name=PEOPLE,
            faculty="law medicine physics history economics",
            age=range(30, 75),
        ),
        table(
            "course",
            "course courses",
            title="Algebra Botany Calculus Drama Ethics Finance Genetics Logic Optics Statistics Rhetoric Zoology",
            semester="spring summer autumn winter",
            credits=range(1, 20),
            students=range(5, 300),
        ),
        "id",
        "professor_id",
    ),
    Database(
        "farms",
        table("farmers", "farmer farmers", name=PEOPLE, region="north south east west coast", acres=range(10, 900)),
        table(
            "crops",
            "crop crops",
            crop_name="wheat corn rice barley oats soy cotton potato carrot onion beet hemp",
            season="spring summer autumn winter",
            yield_tons=range(5, 400),
            cost=range(100, 9000, 20),
        ),
        "farmer_id",
        "farmer_id",
    ),
    Database(
        "songs",
        table(
            "album",
            "album albums",
            album_name="Aurora Bloom Cascade Dusk Electric Fable Glow Halo",
            label="Sony Decca Motown Virgin Verve",
            year=YEARS,
        ),
        table(
            "song",
            "song songs",
            song_name="Angel, Blue Sky, Candle, Dancer, Fire, Home, Lullaby, Mercy, Only You, Rain, Shine, Wings",
            mood="happy sad calm angry",
            duration=range(90, 500),
            plays=range(100, 9900, 10),
        ),
        "id",
        "album_id",
    ),
    Database(
        "banks",
        table(
            "client",
            "client clients",
            client_name=PEOPLE,
            occupation="nurse lawyer baker painter pilot farmer",
            age=range(18, 90),
        ),
        table(
            "account",
            "account accounts",
            account_code=tuple(f"A{number}" for number in range(1000, 9999, 77)),
            currency="euro dollar pound yen",
            balance=range(100, 90000, 100),
            opened=range(1990, 2024),
        ),
        "client_id",
        "client_id",
    ),
    Database(
        "trains",
        table(
            "station",
            "station stations",
            station_name="Central Harbor Airport Market Castle University Stadium Museum",
            zone="A B C D",
            platforms=range(1, 30),
        ),
        table(
            "train",
            "train trains",
            train_name="Arrow Comet Express Falcon Glider Meteor Orient Pacer Rocket Swift Tempest Zephyr",
            operator="RailOne Metro Transit Norail",
            speed=range(60, 320, 5),
            seats=range(50, 900, 5),
        ),
        "id",
        "station_id",
    ),
    Database(
        "plants",
        table(
            "garden",
            "garden gardens",
            garden_name="Eden Rosewood Fernhill Kew Meadow Sunnyside Orchard Lakeside",
            climate="dry humid mild cold",
            size=range(20, 900),
        ),
        table(
            "plant",
            "plant plants",
            plant_name="aloe basil cactus daisy fern ivy lily maple mint orchid rose tulip",
            color=COLORS,
            height=range(5, 300),
            price=tenths(1, 50),
        ),
        "id",
        "garden_id",
    ),
    Database(
        "cycling",
        table(
            "sponsor",
            "sponsor sponsors",
            sponsor_name="Vega Helios Stratos Quark Lunaro Ferro Maxio",
            industry="food energy banking telecom",
            funding=range(10, 900),
        ),
        table(
            "cyclist",
            "cyclist cyclists",
            name=PEOPLE,
            country=COUNTRIES,
            wins=range(50),
            age=range(18, 42),
        ),
        "sponsor_id",
        "sponsor_id",
    ),
)

UNSEEN_PEOPLE = listed(
    "Adele Bruno Clara Dmitri Edgar Fiona Gustav Helen Igor Judith Kurt Lydia Miguel Nora Oscar Petra Ruth Simon"
)
UNSEEN_CITIES = listed("Bogota Brussels Denver Geneva Hanoi Helsinki Kyoto Munich Naples Toronto Venice Warsaw")
UNSEEN_COUNTRIES = listed("Austria Belgium Cuba Denmark Ghana Iceland Nepal Peru Poland Turkey Vietnam")

UNSEEN = (
    Database(
        "ships",
        table(
            "captain",
            "captain captains",
            captain_name=UNSEEN_PEOPLE,
            rank="ensign admiral commander lieutenant",
            service=range(1, 45),
        ),
        table(
            "ship",
            "ship ships",
            ship_name="Argo Bounty Calypso Endeavour Fortuna Hermes Nautilus Pegasus Santa Triton Valiant",
            flag=UNSEEN_COUNTRIES,
            load=range(500, 90000, 100),
            crew=range(8, 400),
        ),
        "captain_id",
        "captain_id",
    ),
    Database(
        "court",
        table(
            "judge",
            "judge judges",
            judge_name=UNSEEN_PEOPLE,
            court="county federal supreme district",
            tenure=range(1, 40),
        ),
        table(
            "trial",
            "trial trials",
            file=tuple(f"L{number}" for number in range(20, 990, 13)),
            verdict="guilty innocent settled dismissed",
            sentence=range(1, 60),
            fee=range(1000, 90000, 500),
        ),
        "id",
        "judge_id",
    ),
    Database(
        "observatory",
        table(
            "telescope",
            "telescope telescopes",
            telescope_name="Hubble Kepler Spitzer Gemini Subaru Chandra Webb",
            site=UNSEEN_CITIES,
            power=range(20, 900),
        ),
        table(
            "planet",
            "planet planets",
            planet_name=tuple(f"P{number}" for number in range(11, 990, 17)),
            category="rocky gaseous icy molten",
            mass=range(2, 900),
            moons=range(60),
        ),
        "id",
        "telescope_id",
    ),
    Database(
        "bakery",
        table(
            "bakers", "baker bakers", baker_name=UNSEEN_PEOPLE, shift="morning evening night noon", wage=range(10, 60)
        ),
        table(
            "cakes",
            "cake cakes",
            cake_name="brownie cheesecake cupcake donut eclair muffin pavlova scone strudel tiramisu waffle",
            flavor="vanilla chocolate lemon almond",
            sugar=range(5, 90),
            slices=range(2, 40),
        ),
        "baker_id",
        "baker_id",
    ),
    Database(
        "apartments",
        table(
            "landlord", "landlord landlords", landlord_name=UNSEEN_PEOPLE, suburb=UNSEEN_CITIES, wealth=range(50, 900)
        ),
        table(
            "apartment",
            "apartment apartments",
            address="Elm 4, Oak 12, Pine 7, Cedar 31, Birch 9, Maple 22, Walnut 5, Willow 16, Aspen 3, Hazel 8",
            condition="new renovated old ruined",
            rent=range(300, 3000, 10),
            floor=range(1, 40),
        ),
        "id",
        "landlord_id",
    ),
    Database(
        "wines",
        table(
            "vineyard",
            "vineyard vineyards",
            vineyard_name="Bellavista Montes Penfolds Ravenswood Torres Vasse Yalumba",
            valley="Douro Mosel Napa Rhone",
            land=range(5, 400),
        ),
        table(
            "wine",
            "wine wines",
            wine_name="Alba Brio Cuvee Dolce Fleur Grande Lacrima Notte Perla Solera Vivo",
            grape="merlot syrah riesling malbec",
            strength=tenths(9, 16),
            stock=range(100, 9000, 50),
        ),
        "vineyard_id",
        "vineyard_id",
    ),
    Database(
        "satellites",
        table(
            "agency",
            "agency agencies",
            agency_name="Andromeda Cosmos Helix Nova Stellar Zenith Orbital",
            base=UNSEEN_CITIES,
            funds=range(20, 900),
        ),
        table(
            "satellite",
            "satellite satellites",
            satellite_name="Anik Beidou Cosmo Explorer Galaxy Iris Jason Landsat Meteo Pallas Sputnik",
            purpose="weather military research navigation",
            altitude=range(200, 36000, 100),
            signal=range(1, 90),
        ),
        "id",
        "agency_id",
    ),
    Database(
        "theater",
        table("actor", "actor actors", actor_name=UNSEEN_PEOPLE, homeland=UNSEEN_COUNTRIES, fame=range(1, 100)),
        table(
            "play",
            "play plays",
            play_name="Cinderella Coppelia Firebird Giselle Jewels Manon Nutcracker Onegin Raymonda Sylvia Swanlake",
            tone="tragic comic absurd solemn",
            scenes=range(2, 60),
            runtime=range(30, 200),
        ),
        "id",
        "actor_id",
    ),
)
