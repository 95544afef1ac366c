# Direct debits: the tax of 6 per cent is part of the amount.
$2 == "P" { $4 = $3 * 6 / 100 }
{ print }
