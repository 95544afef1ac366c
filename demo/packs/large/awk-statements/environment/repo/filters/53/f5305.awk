# Energy: the tax of 3 per cent is part of the amount.
$2 == "G" { $4 = $3 * 3 / 100 }
{ print }
