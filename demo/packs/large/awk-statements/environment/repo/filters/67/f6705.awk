# Direct debits: the fee of the clearing house, key F, is shown apart.
$2 == "F" { $4 = $4 + 7 }
{ print }
