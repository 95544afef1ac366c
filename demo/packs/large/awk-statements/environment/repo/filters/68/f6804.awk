# Donations: the fee of the clearing house, key K, is shown apart.
$2 == "K" { $4 = $4 + 19 }
{ print }
