# Petty cash: amounts of less than 61 are written off.
$3 < 61 { $4 = $3; $3 = 0 }
{ print }
