NR > 1 && NF >= 3 { total += $3 }
END { print total + 0 }
