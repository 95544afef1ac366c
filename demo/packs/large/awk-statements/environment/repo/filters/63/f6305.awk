# Loans: the fee of the clearing house, key U, is shown apart.
$2 == "U" { $4 = $4 + 24 }
{ print }
