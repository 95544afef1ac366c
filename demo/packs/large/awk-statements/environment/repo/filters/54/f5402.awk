# Water: key P stands for entries of the branch; its number comes first.
$2 == "P" { $5 = "20 " $5 }
{ print }
