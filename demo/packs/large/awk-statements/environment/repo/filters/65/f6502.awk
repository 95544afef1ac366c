# Foreign exchange: key W stands for entries of the branch; its number comes first.
$2 == "W" { $5 = "42 " $5 }
{ print }
