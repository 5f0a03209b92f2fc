"""The tools that requests are about, and how people ask for them. Data only; `calls.py` draws from it.

A tool and its parameters have several names, so that a model has to read the definitions instead of learning names.
In a wording `{city}` stands for a value of that parameter, and `{loud= with sound| in silence}` for a boolean one: what
is said where it is true, and where it is false. A parameter that a wording leaves out is an optional one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """Its names, its type as definitions tell it (of a choice: the values), and what values are drawn from."""

    names: str
    type: str
    values: tuple[str | int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    names: str
    about: str
    parameters: dict[str, Parameter]
    wordings: tuple[str, ...]
    unseen_wordings: tuple[str, ...] = ()


def strings(names: str, values: str) -> Parameter:
    return Parameter(names, "string", tuple(values.split(", ")))


def integers(names: str, low: int, high: int, step: int = 1) -> Parameter:
    return Parameter(names, "integer", tuple(range(low, high + 1, step)))


def numbers(names: str, low: int, high: int) -> Parameter:
    """Tenths, a whole number never."""
    return Parameter(names, "number", tuple(n / 10 for n in range(low * 10, high * 10) if n % 10))


def choice(names: str, values: str) -> Parameter:
    return Parameter(names, values, tuple(values.split("|")))


def boolean(names: str) -> Parameter:
    return Parameter(names, "boolean", (True, False))


# Of these, and of all strings below, the last third is kept for tests.
CITIES = (
    "Athens, Berlin, Boston, Cairo, Chicago, Dublin, Lima, Lisbon, London, Madrid, Milan, Oslo, Paris, Prague, Rome, "
    "Seoul, Sydney, Tokyo, Vienna, Denver, Geneva, Hanoi, Helsinki, Kyoto, Munich, Naples, Toronto, Venice, Warsaw"
)
PEOPLE = (
    "Adam, Alice, Amy, Anna, Ben, Carl, Clara, David, Emma, Eva, Hugo, Ivy, Jane, Julia, Kim, Laura, Leo, Lucy, Mark, "
    "Max, Mia, Nina, Diana, Edgar, Fiona, Felix, Grace, Ian, Marta, Oscar, Ruth, Simon, Vera"
)
ROOMS = "kitchen, bedroom, bathroom, hall, office, garage, attic, living room, cellar, nursery, guest room, library"
TIMES = (
    "5:15, 6:30, 7:00, 7:45, 8:10, 9:20, 10:30, 11:05, 12:40, 13:15, 14:50, 15:25, 16:00, 17:35, 18:45, 19:30, 20:10, "
    "6:55, 9:05, 11:40, 13:50, 16:20, 18:05, 19:55, 21:15"
)
DATES = (
    "May 4, June 12, July 1, August 23, March 8, April 17, October 30, January 9, February 14, Monday, Tuesday, "
    "Friday, December 5, November 21, September 2, July 19, Sunday, Thursday"
)
CURRENCIES = "euros, dollars, yen, pounds, francs, rupees, kroner, pesos, zloty, won, rand, forints"
STREETS = (
    "12 Oak Street, 5 Mill Road, 48 Park Lane, 7 King Street, 31 Hill Road, 90 Station Road, the airport, the museum, "
    "the harbour, 66 Lake Drive, 3 Church Lane, 27 Bridge Street, the town hall, the zoo"
)

TOOLS = (
    Tool(
        "set_alarm create_alarm alarm_at",
        "Set an alarm clock.",
        {"time": strings("time at hour", TIMES), "loud": boolean("loud sound")},
        (
            "Set an alarm for {time}.",
            "Wake me up at {time}.",
            "I need an alarm at {time}{loud= with sound| without sound}.",
            "Alarm at {time}, {loud=loud|not loud}.",
        ),
        ("I have to get up at {time} tomorrow.", "Make the alarm ring at {time}{loud=, loud|, but not loud}."),
    ),
    Tool(
        "get_weather weather_forecast forecast",
        "Tell the weather in a city.",
        {
            "city": strings("city place location", CITIES),
            "days": integers("days ahead", 2, 9),
            "unit": choice("unit scale", "celsius|fahrenheit"),
        },
        (
            "What will the weather be like in {city}?",
            "Show me the weather in {city} for the next {days} days.",
            "Give me the forecast for {city} in {unit}.",
            "Will it rain in {city} in the coming {days} days?",
        ),
        ("Do I need an umbrella in {city}?", "How warm is it in {city}, in {unit}?"),
    ),
    Tool(
        "send_message text_person message",
        "Send a text message to a person.",
        {
            "person": strings("person to recipient", PEOPLE),
            "text": strings(
                "text body content",
                "I am late, see you soon, happy birthday, the train is on time, call me back, dinner is ready, "
                "I lost my keys, good luck today, I am at the door, the meeting is over, bring some milk, well done",
            ),
        },
        (
            "Tell {person}: {text}",
            "Send {person} the message: {text}",
            "Write to {person}: {text}",
            "Text {person} this: {text}",
        ),
        ("Let {person} know: {text}", "A message for {person}, please: {text}"),
    ),
    Tool(
        "convert_currency exchange_money change_currency",
        "Convert an amount of money into another currency.",
        {
            "amount": numbers("amount value sum", 2, 900),
            "source": strings("source from", CURRENCIES),
            "target": strings("target to", CURRENCIES),
        },
        (
            "How much is {amount} {source} in {target}?",
            "Convert {amount} {source} to {target}.",
            "Change {amount} {source} into {target}.",
            "What do I get in {target} for {amount} {source}?",
        ),
        ("I have {amount} {source}. What is that in {target}?", "{amount} {source} make how many {target}?"),
    ),
    Tool(
        "play_song play_music start_song",
        "Play a song.",
        {
            "title": strings(
                "title song track",
                "Yesterday, Hey Jude, Imagine, Thriller, Purple Rain, Wonderwall, Hurt, Creep, Respect, Halo, Africa",
            ),
            "volume": integers("volume level", 1, 10),
        },
        (
            "Play {title}.",
            "I want to hear {title}.",
            "Play the song {title} at volume {volume}.",
            "Put on {title}, volume {volume}.",
        ),
        ("Let me listen to {title}.", "Start {title} and set the volume to {volume}."),
    ),
    Tool(
        "book_table reserve_table table_for",
        "Book a table in a restaurant.",
        {
            "restaurant": strings(
                "restaurant place",
                "Bella Roma, Blue Moon, Golden Dragon, La Piazza, Old Mill, Green Leaf, Sea Breeze, Casa Luna, The Fox",
            ),
            "people": integers("people guests seats", 2, 9),
            "time": strings("time at", TIMES),
        },
        (
            "Book a table for {people} at {restaurant}.",
            "Reserve a table at {restaurant} at {time} for {people} people.",
            "We are {people} and want to eat at {restaurant} at {time}.",
            "Get us a table at {restaurant} for {people} guests.",
        ),
        ("{people} of us would like to dine at {restaurant}.", "A table for {people} at {restaurant}, {time}."),
    ),
    Tool(
        "add_to_list shopping_list add_item",
        "Put something on the shopping list.",
        {
            "item": strings(
                "item product what",
                "milk, bread, apples, eggs, rice, soap, coffee, butter, onions, cheese, tea, salt, honey, lemons, jam",
            ),
            "count": integers("count quantity number", 2, 20),
        },
        (
            "Put {item} on the shopping list.",
            "Add {item} to my list.",
            "We are out of {item}, put {count} on the list.",
            "Add {count} packs of {item} to the shopping list.",
        ),
        ("Don't let me forget to buy {item}.", "The shopping list needs {count} boxes of {item}."),
    ),
    Tool(
        "set_light light_control adjust_light",
        "Set the light in a room.",
        {
            "room": strings("room where", ROOMS),
            "brightness": integers("brightness percent level", 5, 100, 5),
            "color": choice("color tone", "white|warm|blue"),
        },
        (
            "Set the light in the {room} to {brightness} percent.",
            "Dim the {room} light to {brightness} percent.",
            "Make the light in the {room} {color}.",
            "I want {color} light in the {room} at {brightness} percent.",
        ),
        ("Light in the {room}: {brightness} percent.", "Switch the lamp in the {room} to {color}."),
    ),
    Tool(
        "translate_text translate translation",
        "Translate words into another language.",
        {
            "text": strings(
                "text words phrase",
                "good morning, where is the station, thank you, I am hungry, the bill please, good night, how are you, "
                "my name is Tom, I need a doctor, see you tomorrow, what time is it, the soup is cold",
            ),
            "language": strings(
                "language into target", "French, German, Spanish, Italian, Polish, Greek, Dutch, Danish, Korean"
            ),
        },
        (
            "Translate '{text}' into {language}.",
            "How do I say '{text}' in {language}?",
            "What is '{text}' in {language}?",
            "I need '{text}' in {language}.",
        ),
        ("Put '{text}' into {language} for me.", "Say '{text}' in {language}."),
    ),
    Tool(
        "create_event add_event calendar_entry",
        "Put an event into the calendar.",
        {
            "title": strings(
                "title name event",
                "dentist, team lunch, yoga, piano lesson, book club, board meeting, swimming, haircut, job interview",
            ),
            "date": strings("date day on", DATES),
            "time": strings("time at start", TIMES),
        },
        (
            "Put {title} into my calendar on {date}.",
            "Add {title} to the calendar: {date} at {time}.",
            "I have {title} on {date} at {time}, note it in my calendar.",
            "Calendar: {title}, {date}.",
        ),
        ("Write down {title} for {date} in the calendar.", "Plan {title} on {date} at {time}."),
    ),
    Tool(
        "find_flight search_flights flight_search",
        "Find flights from one city to another.",
        {
            "start": strings("start from origin", CITIES),
            "end": strings("end to destination", CITIES),
            "date": strings("date day on", DATES),
        },
        (
            "Find a flight from {start} to {end} on {date}.",
            "Which flights go from {start} to {end}?",
            "I want to fly from {start} to {end} on {date}.",
            "Flights to {end} from {start}, please.",
        ),
        ("I am in {start} and must fly to {end}.", "Look for planes to {end} leaving {start} on {date}."),
    ),
    Tool(
        "call_taxi order_taxi get_cab",
        "Order a taxi.",
        {"start": strings("start pickup from", STREETS), "end": strings("end destination to", STREETS)},
        (
            "Call me a taxi to {end}.",
            "I need a taxi from {start} to {end}.",
            "Order a cab to {end}.",
            "Send a taxi to {start}, I want to go to {end}.",
        ),
        ("A cab from {start} to {end}, please.", "Can a taxi take me to {end}?"),
    ),
    Tool(
        "set_temperature heat_room thermostat",
        "Set the heating of a room.",
        {"room": strings("room where", ROOMS), "degrees": numbers("degrees temperature celsius", 16, 26)},
        (
            "Set the heating in the {room} to {degrees} degrees.",
            "Make the {room} {degrees} degrees warm.",
            "I want {degrees} degrees in the {room}.",
            "Heat the {room} to {degrees} degrees.",
        ),
        ("The {room} should have {degrees} degrees.", "Turn the thermostat of the {room} to {degrees}."),
    ),
    Tool(
        "track_parcel parcel_status find_package",
        "Tell where a parcel is.",
        {"code": strings("code number id", "AB12, KX90, QT47, ZZ31, LM05, PW68, RD22, HJ73, CN19, VB54, FE86, TY39")},
        (
            "Where is my parcel {code}?",
            "Track the parcel {code}.",
            "Has the package {code} arrived?",
            "When does parcel {code} come?",
        ),
        ("I am waiting for package {code}.", "Look up the parcel with the number {code}."),
    ),
    Tool(
        "order_pizza pizza buy_pizza",
        "Order pizza to be delivered.",
        {
            "topping": strings(
                "topping kind with", "ham, mushrooms, salami, tuna, olives, peppers, spinach, pineapple, bacon"
            ),
            "size": choice("size format", "small|medium|large"),
            "count": integers("count pieces number", 2, 9),
        },
        (
            "Order a {size} pizza with {topping}.",
            "I want a pizza with {topping}.",
            "Get {count} {size} pizzas with {topping}.",
            "Have {count} pizzas with {topping} delivered.",
        ),
        ("Bring us {count} pizzas, {topping} on top.", "One {size} pizza with {topping} would be great."),
    ),
    Tool(
        "start_timer countdown set_timer",
        "Start a timer.",
        {
            "minutes": integers("minutes length duration", 2, 59),
            "name": strings("name label for", "eggs, tea, laundry, rice, cake, bread"),
        },
        (
            "Start a timer of {minutes} minutes.",
            "Count down {minutes} minutes.",
            "A {minutes} minute timer for the {name}.",
            "Timer for the {name}: {minutes} minutes.",
        ),
        ("Tell me when {minutes} minutes are over.", "The {name} takes {minutes} minutes, start a timer."),
    ),
    Tool(
        "log_run save_run record_run",
        "Note down a run for the training diary.",
        {
            "distance": numbers("distance kilometers length", 2, 30),
            "minutes": integers("minutes time duration", 15, 180),
        },
        (
            "I ran {distance} kilometers in {minutes} minutes.",
            "Note a run of {distance} kilometers.",
            "Log my run: {distance} kilometers, {minutes} minutes.",
            "Today I ran {distance} kilometers, write that down.",
        ),
        ("My run today: {distance} kilometers.", "It took me {minutes} minutes to run {distance} kilometers."),
    ),
    Tool(
        "rent_car hire_car car_rental",
        "Rent a car.",
        {
            "city": strings("city place location", CITIES),
            "days": integers("days length", 2, 21),
            "automatic": boolean("automatic automatic_gear"),
        },
        (
            "Rent a car in {city} for {days} days.",
            "I need a car in {city} for {days} days{automatic=, automatic|, not automatic}.",
            "Find me a rental car in {city}, {days} days.",
            "Get a car{automatic= with| without} automatic gear for {days} days in {city}.",
        ),
        (
            "For {days} days I want to drive a car in {city}.",
            "Car for {days} days in {city}{automatic=, automatic|, no automatic}.",
        ),
    ),
    Tool(
        "transfer_money send_money pay_person",
        "Send money to a person.",
        {
            "person": strings("person to recipient", PEOPLE),
            "amount": numbers("amount value euros", 2, 500),
            "urgent": boolean("urgent express"),
        },
        (
            "Send {person} {amount} euros.",
            "Transfer {amount} euros to {person}{urgent=, it is urgent|, it is not urgent}.",
            "Pay {person} {amount} euros.",
            "I owe {person} {amount} euros, send them{urgent= urgently|, not urgently}.",
        ),
        ("{person} gets {amount} euros from me.", "{amount} euros to {person}{urgent=, urgent|, not urgent}."),
    ),
    Tool(
        "find_recipe search_recipes what_to_cook",
        "Find a recipe to cook.",
        {
            "ingredient": strings(
                "ingredient with using", "carrots, beans, chicken, potatoes, salmon, lentils, pumpkin, leeks, beef"
            ),
            "minutes": integers("minutes max_minutes time", 10, 90, 5),
            "vegetarian": boolean("vegetarian meatless"),
        },
        (
            "Find a recipe with {ingredient}.",
            "What can I cook with {ingredient} in {minutes} minutes?",
            "I have {ingredient}. A recipe of {minutes} minutes, please.",
            "Show me a{vegetarian= vegetarian| non-vegetarian} recipe with {ingredient}.",
        ),
        ("Any ideas for cooking {ingredient}?", "Something with {ingredient} that is done in {minutes} minutes."),
    ),
    Tool(
        "stock_price get_share_price share_value",
        "Tell the price of a company's shares.",
        {
            "company": strings(
                "company firm name",
                "Apple, Tesla, Sony, Nokia, Siemens, Shell, Boeing, Intel, Pfizer, Toyota, Adidas, Nestle",
            )
        },
        (
            "What does a share of {company} cost?",
            "Tell me the share price of {company}.",
            "How are the shares of {company} doing?",
            "What is {company} worth on the stock market?",
        ),
        ("Look up the stock of {company}.", "Did the shares of {company} fall?"),
    ),
    Tool(
        "lock_door set_lock door_lock",
        "Lock or unlock a door.",
        {
            "door": strings(
                "door which name", "front door, back door, garage door, side door, cellar door, balcony door"
            ),
            "locked": boolean("locked closed"),
        },
        (
            "{locked=Lock|Unlock} the {door}.",
            "Please {locked=lock|unlock} the {door}.",
            "I want the {door} {locked=locked|unlocked}.",
            "The {door} should be {locked=locked|unlocked}.",
        ),
        ("Make sure that the {door} is {locked=locked|unlocked}.", "Can you {locked=lock|unlock} the {door} for me?"),
    ),
)

#: Said to no tool at all.
SMALL_TALK = (
    "How are you today?",
    "Tell me a joke.",
    "Who wrote Hamlet?",
    "I feel a little sad.",
    "What is the meaning of life?",
    "You are very kind.",
    "Why is the sky blue?",
    "Write a poem about the sea.",
    "Do you like cats?",
    "What is 12 times 12?",
    "Explain gravity to a child.",
    "My sister is taller than me.",
)
