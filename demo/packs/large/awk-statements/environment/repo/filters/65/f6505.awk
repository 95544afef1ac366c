# Foreign exchange: the fee of the clearing house, key J, is shown apart.
$2 == "J" { $4 = $4 + 25 }
{ print }
