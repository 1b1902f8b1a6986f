"""The built-in texts of load tests: sentences of 1 to 40 words."""

__all__ = ["ENGLISH", "GERMAN"]

ENGLISH = (
    "Help!",
    "Good morning.",
    "Where is my new card?",
    "I lost my wallet yesterday.",
    "How is the weather going to be tomorrow?",
    "Please book a table for two at eight.",
    "How much does it cost to send money abroad?",
    "The train was late again, so we missed the beginning.",
    "Can you tell me which of these words is the right one?",
    "My phone does not ring any more, although the battery is full.",
    "She had been looking for something like this for a long time.",
    "We would like to stay for three nights, with breakfast, if there is still a room free.",
    "Set an alarm for seven, and remind me to call my sister before I leave the house.",
    "The payment was declined at the airport, and no one at the counter could tell me why that might be.",
    "When we reached the top of the hill the fog had lifted, and far below us we saw the lights of the town.",
    "There are books that one reads once and gives away, and there are others that one keeps on a shelf for years, "
    "only to know that they are there.",
    "I ordered two shirts and a pair of shoes last week, but only one of the shirts has come so far, the address on "
    "the parcel was wrong, and I would like to have my money back.",
)

GERMAN = (
    "Hilfe!",
    "Guten Morgen.",
    "Wo ist mein Buch?",
    "Ich habe gestern meinen Schlüssel verloren.",
    "Wie wird das Wetter morgen sein?",
    "Wir hätten gern einen Tisch für zwei Personen.",
    "Der Zug hatte wieder Verspätung, und wir haben den Anfang verpasst.",
    "Kannst du mir sagen, welches von diesen Wörtern das richtige ist?",
    "Mein Telefon klingelt nicht mehr, obwohl der Akku voll ist.",
    "Sie hatte schon lange nach so etwas gesucht.",
    "Wir möchten drei Nächte bleiben, mit Frühstück, wenn noch ein Zimmer frei ist.",
    "Stell den Wecker auf sieben Uhr. Erinnere mich daran, meine Schwester anzurufen.",
    "Als wir oben auf dem Hügel ankamen, hatte sich der Nebel gehoben, und weit unter uns sahen wir die Lichter der "
    "Stadt.",
    "Es gibt Bücher, die man einmal liest und dann verschenkt, und es gibt andere, die man jahrelang im Regal behält, "
    "nur um zu wissen, dass sie da sind.",
    "Ich habe letzte Woche zwei Hemden und ein Paar Schuhe bestellt. Bisher ist nur eines der Hemden gekommen. Die "
    "Adresse auf dem Paket war falsch, und ich möchte mein Geld zurück.",
)
