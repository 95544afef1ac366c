# Deposits: the fee of the clearing house, key B, is shown apart.
$2 == "B" { $4 = $4 + 11 }
{ print }
