# Customs: amounts of less than 5 are written off.
$3 < 5 { $4 = $3; $3 = 0 }
{ print }
