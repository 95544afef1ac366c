# Donations: an empty text says what the account is.
$5 == "" { $5 = "donations" }
{ print }
