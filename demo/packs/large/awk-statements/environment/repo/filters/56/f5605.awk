# Wages: the fee of the clearing house, key V, is shown apart.
$2 == "V" { $4 = $4 + 10 }
{ print }
