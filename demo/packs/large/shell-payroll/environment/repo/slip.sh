#!/bin/sh
# sh slip.sh FORM [FIELD=VALUE]...
cd "$(dirname "$0")" || exit 2
if [ ! -f "forms/$1.txt" ]; then
	echo "slip.sh: no such form: $1" >&2
	exit 2
fi
h=0 y=1 g=2 k=0 d=1 t=12 a=0
form=$1
shift
for field in "$@"; do
	value=${field#?=}
	case $field in
	h=*) h=$value ;;
	y=*) y=$value ;;
	g=*) g=$value ;;
	k=*) k=$value ;;
	d=*) d=$value ;;
	t=*) t=$value ;;
	*)
		echo "slip.sh: no such field: $field" >&2
		exit 2
		;;
	esac
done
for article in $(cat "forms/$form.txt"); do
	. "./articles/${article%??}/a$article.sh"
	"a$article"
done
echo "$a"
