# Deposits: an empty text says what the account is.
$5 == "" { $5 = "deposits" }
{ print }
