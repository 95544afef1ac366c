# Freight: the tax of 11 per cent is part of the amount.
$2 == "G" { $4 = $3 * 11 / 100 }
{ print }
