# Advertising: the tax of 19 per cent is part of the amount.
$2 == "C" { $4 = $3 * 19 / 100 }
{ print }
