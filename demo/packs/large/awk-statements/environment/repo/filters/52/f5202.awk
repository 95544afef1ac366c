# Insurance: key A stands for entries of the branch; its number comes first.
$2 == "A" { $5 = "63 " $5 }
{ print }
