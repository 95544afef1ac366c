# Taxes: the tax of 5 per cent is part of the amount.
$2 == "G" { $4 = $3 * 5 / 100 }
{ print }
