# Foreign exchange: amounts of less than 28 are written off.
$3 < 28 { $4 = $3; $3 = 0 }
{ print }
