# Advertising: the fee of the clearing house, key T, is shown apart.
$2 == "T" { $4 = $4 + 10 }
{ print }
