# Telephone: the tax of 16 per cent is part of the amount.
$2 == "N" { $4 = $3 * 16 / 100 }
{ print }
