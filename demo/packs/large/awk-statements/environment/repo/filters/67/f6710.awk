# Direct debits: mandates are named by their last four figures.
$2 == "Y" { $5 = substr($5, length($5) - 3) }
{ print }
