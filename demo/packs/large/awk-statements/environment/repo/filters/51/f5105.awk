# Rent: the tax of 15 per cent is part of the amount.
$2 == "U" { $4 = $3 * 15 / 100 }
{ print }
