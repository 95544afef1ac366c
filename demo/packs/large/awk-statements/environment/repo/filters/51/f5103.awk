# Rent: the fee of the clearing house, key W, is shown apart.
$2 == "W" { $4 = $4 + 3 }
{ print }
