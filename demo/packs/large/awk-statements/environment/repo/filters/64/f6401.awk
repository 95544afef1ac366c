# Securities: an empty text says what the account is.
$5 == "" { $5 = "securities" }
{ print }
