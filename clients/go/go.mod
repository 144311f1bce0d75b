module github.com/antiphon-project/antiphon/clients/go

go 1.23
