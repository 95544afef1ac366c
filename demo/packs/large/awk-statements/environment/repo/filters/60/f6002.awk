# Advertising: amounts of less than 51 are written off.
$3 < 51 { $4 = $3; $3 = 0 }
{ print }
