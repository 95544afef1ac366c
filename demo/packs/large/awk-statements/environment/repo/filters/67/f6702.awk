# Direct debits: key F stands for entries of the branch; its number comes first.
$2 == "F" { $5 = "18 " $5 }
{ print }
