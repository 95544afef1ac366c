# Telephone: an empty text says what the account is.
$5 == "" { $5 = "telephone" }
{ print }
