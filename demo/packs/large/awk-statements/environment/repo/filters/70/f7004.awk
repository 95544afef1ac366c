# Petty cash: entries without a key get that of the house bank.
$2 == "" { $2 = "K" }
{ print }
