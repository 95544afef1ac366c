# Loans: the tax of 9 per cent is part of the amount.
$2 == "S" { $4 = $3 * 9 / 100 }
{ print }
