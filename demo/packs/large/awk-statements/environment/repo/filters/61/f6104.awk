# Repairs: the fee of the clearing house, key L, is shown apart.
$2 == "L" { $4 = $4 + 28 }
{ print }
