#!/bin/sh
# Makes the certificates of the tests, good from 2020 for a hundred years. Nothing but these tests trusts their
# authorities, whose keys are not kept.
set -eu
cd "$(dirname "$0")"
made=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n' > cnf
: > index
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
certificate() { # NAME EXTENSIONS HOW…
    name=$1; extensions=$2; shift 2
    key "$name"
    openssl req -new -key "$name.key" -subj "/CN=antiphon tests $name" -out csr
    printf '%b\n' "$extensions" > ext
    openssl ca -batch -notext -config cnf -in csr -out "$name.pem" -extfile ext \
        -startdate 20200101000000Z -enddate 21200101000000Z "$@"
}
authority() { certificate "$1" 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign' -selfsign -keyfile "$1.key"; }
signed() { certificate "$1" "basicConstraints=critical,CA:FALSE\n$3" -cert "$2.pem" -keyfile "$2.key"; }
names='subjectAltName=DNS:localhost,DNS:agent.example,DNS:*.agents.example,IP:127.0.0.1,IP:10.1.2.3'
authority ca
authority other-ca
signed agent ca "$names\nextendedKeyUsage=serverAuth"
# The same names: what replaces the first in a rotation.
signed agent-2 ca "$names\nextendedKeyUsage=serverAuth"
signed client ca 'subjectAltName=DNS:client\nextendedKeyUsage=clientAuth'
signed stranger other-ca 'subjectAltName=DNS:client\nextendedKeyUsage=clientAuth'
for name in agent agent-2 client stranger; do cp "$name.key" "$name.pem" "$made"; done
cp ca.pem "$made"
