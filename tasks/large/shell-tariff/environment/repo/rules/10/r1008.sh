# Letter: in July and August letters wait for cooler hours, at no charge but the handling.
r1008() {
	case $m in
	7 | 8) p=$((p + 40)) ;;
	esac
}
