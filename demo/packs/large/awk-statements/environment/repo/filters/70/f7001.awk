# Petty cash: an empty text says what the account is.
$5 == "" { $5 = "petty cash" }
{ print }
