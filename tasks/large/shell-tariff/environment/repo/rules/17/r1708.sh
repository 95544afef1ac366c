# Parcel: in July and August parcels wait for cooler hours, at no charge but the handling.
r1708() {
	case $m in
	7 | 8) p=$((p + 55)) ;;
	esac
}
