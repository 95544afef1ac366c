# The first of the largest amounts.
NR == 1 || NF < 3 { next }
!found || $3 > amount {
  found = 1
  date = $1
  amount = $3
  note = $3
}
END {
  if (found)
    print note, amount, "(" date ")"
}
