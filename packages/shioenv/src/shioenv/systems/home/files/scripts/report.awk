# Units and totals per region.
NR > 1 { units[$1] += $2; total[$1] += $4 }
END { for (region in units) printf "%-8s %6d %9.2f\n", region, units[region], total[region] }
