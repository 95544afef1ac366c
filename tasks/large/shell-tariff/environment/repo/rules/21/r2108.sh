# Cash on delivery: in July and August deliveries against cash wait for cooler hours, at no charge but the handling.
r2108() {
	case $m in
	7 | 8) p=$((p + 55)) ;;
	esac
}
