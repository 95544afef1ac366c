# Donations: amounts of less than 23 are written off.
$3 < 23 { $4 = $3; $3 = 0 }
{ print }
