NR > 1 && NF >= 3 { sum[$2] += $3 }
END {
  for (name in sum)
    print name, sum[name]
}
