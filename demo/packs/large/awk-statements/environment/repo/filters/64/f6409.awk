# Securities: a dividend is entered on the day on which it was announced.
$2 == "Z" { $5 = $5 ", announced" }
{ print }
