# Insurance: the fee of the clearing house, key P, is shown apart.
$2 == "P" { $4 = $4 + 16 }
{ print }
