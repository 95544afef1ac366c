# Plant: in July and August plants and cuttings wait for cooler hours, at no charge but the handling.
r2608() {
	case $m in
	7 | 8) p=$((p + 15)) ;;
	esac
}
