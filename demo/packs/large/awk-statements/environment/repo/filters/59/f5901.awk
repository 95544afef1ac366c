# Freight: an empty text says what the account is.
$5 == "" { $5 = "freight" }
{ print }
