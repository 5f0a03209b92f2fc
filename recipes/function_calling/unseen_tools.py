"""Tools and small talk that training never shows; form and meaning are those of `tools.py`."""

from tools import CITIES, ROOMS, TIMES, Tool, boolean, choice, integers, numbers, strings

UNSEEN_TOOLS = (
    Tool(
        "book_hotel",
        "Book a hotel room.",
        {"city": strings("city", CITIES), "nights": integers("nights", 2, 14), "breakfast": boolean("breakfast")},
        (
            "Book a hotel in {city} for {nights} nights.",
            "I need a room in {city}, {nights} nights, {breakfast=with|without} breakfast.",
            "We will stay {nights} nights in {city}.",
        ),
    ),
    Tool(
        "feed_pet",
        "Give food to a pet.",
        {
            "pet": strings("animal", "cat, dog, parrot, hamster, turtle, rabbit"),
            "grams": integers("grams", 10, 300, 10),
        },
        ("Feed the {pet}.", "Give the {pet} {grams} grams of food.", "The {pet} is hungry, {grams} grams should do."),
    ),
    Tool(
        "buy_cinema_tickets",
        "Buy tickets for a film.",
        {
            "film": strings("film", "Jaws, Alien, Casablanca, Titanic, Rocky, Vertigo, Psycho, Gladiator, Amadeus"),
            "seats": integers("seats", 2, 8),
        },
        (
            "Buy {seats} tickets for {film}.",
            "{seats} of us want to watch {film} in the cinema.",
            "Get cinema tickets for {film}, {seats} seats.",
        ),
    ),
    Tool(
        "charge_car",
        "Charge the electric car.",
        {"percent": integers("percent", 50, 100, 5), "ready_at": strings("ready_at", TIMES)},
        (
            "Charge the car to {percent} percent.",
            "The car should be at {percent} percent by {ready_at}.",
            "Load the car battery up to {percent} percent, until {ready_at}.",
        ),
    ),
    Tool(
        "vacuum_room",
        "Send the robot to clean the floor of a room.",
        {"room": strings("room", ROOMS), "mode": choice("mode", "quiet|normal|strong")},
        (
            "Vacuum the {room}.",
            "Clean the floor of the {room} in {mode} mode.",
            "The {room} is dirty, vacuum it, mode {mode}.",
        ),
    ),
    Tool(
        "measure_distance",
        "Tell how far it is between two cities.",
        {
            "city_a": strings("city_a", CITIES),
            "city_b": strings("city_b", CITIES),
            "unit": choice("unit", "kilometers|miles"),
        },
        (
            "How far is it from {city_a} to {city_b}?",
            "Distance between {city_a} and {city_b} in {unit}?",
            "How many {unit} are there between {city_a} and {city_b}?",
        ),
    ),
    Tool(
        "hire_tutor",
        "Find a private teacher.",
        {
            "subject": strings("subject", "math, physics, biology, history, chemistry, latin, music, art, geography"),
            "hours": numbers("hours_per_week", 1, 6),
            "online": boolean("online"),
        },
        (
            "Find a tutor for {subject}.",
            "I need a teacher for {subject}, {hours} hours a week.",
            "A tutor for {subject}, {online=online|not online}, please.",
        ),
    ),
    Tool(
        "donate",
        "Give money to a charity.",
        {
            "charity": strings("charity", "Red Cross, Oxfam, Greenpeace, Unicef, Amnesty, Caritas"),
            "amount": numbers("amount", 5, 200),
            "monthly": boolean("monthly"),
        },
        (
            "Donate {amount} euros to {charity}.",
            "I would like to give {charity} {amount} euros.",
            "Donate {amount} euros to {charity}, {monthly=monthly|not monthly}.",
        ),
    ),
    Tool(
        "print_file",
        "Print a document on paper.",
        {
            "file": strings("file", "letter.pdf, notes.txt, report.doc, ticket.pdf, map.png, invoice.pdf"),
            "copies": integers("copies", 2, 30),
            "color": boolean("in_color"),
        },
        (
            "Print {file}.",
            "I need {copies} copies of {file} on paper.",
            "Print {file} {copies} times, {color=in color|not in color}.",
        ),
    ),
    Tool(
        "water_garden",
        "Water plants in the garden.",
        {
            "plants": strings("plants", "roses, tomatoes, lawn, herbs, hedge, tulips, beans, apple trees, lettuce"),
            "liters": integers("liters", 2, 60),
        },
        (
            "Water the {plants}.",
            "Give the {plants} {liters} liters of water.",
            "The {plants} are dry, {liters} liters please.",
        ),
    ),
)

#: Said to no tool at all.
UNSEEN_SMALL_TALK = (
    "What is your name?",
    "I had a strange dream.",
    "Who painted the Mona Lisa?",
    "Tell me a story about a fox.",
    "How do birds fly?",
    "That was a long day.",
)
